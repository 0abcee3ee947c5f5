"""Facts about who may talk to the hub."""

import pytest
from hypothesis import given, strategies as st
from starlette.datastructures import QueryParams

from starloom.aip.websocket import token_of
from starloom.hub.guard import Guard

GUARD = Guard("the-right-key", frozenset({"hub.example"}))


@given(st.text(max_size=200))
def test_only_the_right_key_is_right_and_no_text_breaks_the_compare(text: str):
    assert GUARD.key_is_right(text) == (text == "the-right-key")


def test_no_key_is_wrong_even_when_the_hubs_key_is_empty():
    assert not Guard("").key_is_right("")
    assert not GUARD.key_is_right(None)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:5000", "[::1]:5000", "hub.example:80", "LOCALHOST:1"])
def test_our_own_names_are_answered(host: str):
    assert GUARD.host_is_right(host)


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "127.0.0.1.evil.example", "[::1", "localhost@evil.example", "a:b:c"]
)
def test_other_names_are_not(host: str | None):
    assert not GUARD.host_is_right(host)


def test_origins_are_absent_or_ours():
    assert GUARD.origin_is_right(None)
    assert GUARD.origin_is_right("http://127.0.0.1:5000")
    for foreign in ("null", "", "https://evil.example", "http://[", "file://"):
        assert not GUARD.origin_is_right(foreign)


@given(st.text(max_size=300))
def test_any_query_is_read_without_an_error(query: str):
    token_of({}, QueryParams(query))


def test_a_key_is_taken_from_header_bearer_or_query():
    assert token_of({"x-api-key": "k"}, QueryParams("")) == "k"
    assert token_of({"authorization": "Bearer k"}, QueryParams("")) == "k"
    assert token_of({}, QueryParams("a=1&token=k")) == "k"
    assert token_of({"authorization": "Basic k"}, QueryParams("")) is None
