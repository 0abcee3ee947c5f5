import string

import pytest
from hypothesis import given, strategies as st

from starloom.safety.redaction import MARK, Redactor, secrets_of_environment

PLAIN = Redactor()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdef123456789", "abcdef123456789"),
        ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("wss://hub.example/ws?token=s3cr3tvalue&x=1", "s3cr3tvalue"),
        ("https://x.example/?a=1&api_key=s3cr3tvalue#top", "s3cr3tvalue"),
        ("https://user:s3cr3tvalue@host/path", "s3cr3tvalue"),
        ("https://s3cr3tvalue@host/path", "s3cr3tvalue"),
        ("OPENAI_API_KEY=s3cr3tvalue", "s3cr3tvalue"),
        ("export DB_PASSWORD='s3cr3tvalue'", "s3cr3tvalue"),
        ('{"password": "s3cr3tvalue"}', "s3cr3tvalue"),
        ("key sk-proj-abcdefghijklmnop1234", "sk-proj-abcdefghijklmnop1234"),
        ("ghp_abcdefghijklmnopqrstuvwxyz12", "ghp_abcdefghijklmnopqrstuvwxyz12"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("xoxb-1234567890-abcdef", "xoxb-1234567890-abcdef"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.sig_nature", "eyJzdWIiOiIx"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc and the rest is cut", "MIIabc"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text, secret):
    hidden = PLAIN.text(text)
    assert secret not in hidden
    assert MARK in hidden
    assert PLAIN.text(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "Read all invoices and write the totals to totals.xlsx",
        "the token bucket limits requests",
        "https://example.com/path?month=2026-10",
        "max_tokens: 100",
        "a risk-averse task-oriented desk-bound design",
        "sha256 cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "2026-10-03T12:00:00Z hub started on 127.0.0.1:8400",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert PLAIN.text(text) == text


def test_known_secret_is_hidden_in_every_spelling():
    redactor = Redactor(["p@ss/word one", "short"])
    assert "p@ss" not in redactor.text("x p@ss/word one y")
    assert "p%40ss" not in redactor.text("?q=p%40ss%2Fword%20one")
    assert redactor.text("a short text") == "a short text"


def test_values_are_redacted_through_and_through():
    value = {
        "password": "abc",
        "nested": [{"apiKey": "x", "max_tokens": 5, "text": "Bearer abcdefghij"}],
        "n": 1,
        "none": None,
    }
    assert PLAIN.value(value) == {
        "password": MARK,
        "nested": [{"apiKey": MARK, "max_tokens": 5, "text": f"Bearer {MARK}"}],
        "n": 1,
        "none": None,
    }
    assert value["password"] == "abc"


def test_known_secrets_alone_can_be_hidden_in_results_still_to_be_used():
    value = {"password": "abc", "rows": [["hunter2hunter2", 1, None]], "api_key=abcd": True}
    assert Redactor(["hunter2hunter2"]).known(value) == {**value, "rows": [[MARK, 1, None]]}
    assert PLAIN.known(value) == value


def test_environment_names_what_is_secret():
    environ = {
        "OPENAI_API_KEY": "a1",
        "GITHUB_TOKEN": "b2",
        "PATH": "/bin",
        "KEYBOARD": "de",
        "DB_PASSWORD_FILE": "c3",
        "X_SECRET": "",
    }
    assert set(secrets_of_environment(environ)) == {"a1", "b2", "c3"}


secrets = st.text(string.ascii_letters + string.digits, min_size=6, max_size=30)


@pytest.mark.properties
@given(st.lists(secrets, min_size=1, max_size=4), st.lists(st.text(max_size=10), min_size=5, max_size=5))
def test_no_known_secret_survives(known, pieces):
    text = "".join(piece + secret for piece, secret in zip(pieces, [*known, *known, *known], strict=False))
    hidden = Redactor(known).text(text)
    assert not [secret for secret in known if secret in hidden and secret not in MARK]


@pytest.mark.properties
@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text):
    once = PLAIN.text(text)
    assert PLAIN.text(once) == once


REPEATED = [
    "a",
    "a-",
    "a_",
    "x.",
    "http://",
    "?a",
    "eyJ",
    "eyJ-",
    "sk-",
    "token",
    "password=",
    "bearer ",
    "-----BEGIN PRIVATE KEY-----",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_long_text_is_redacted_soon(piece):
    """With a pattern that backtracks this takes minutes."""
    text = piece * (100_000 // len(piece))
    assert PLAIN.text(PLAIN.text(text)) == PLAIN.text(text)
