"""The forgiving parser: each slip has one meaning and a name; whatever could mean two things is refused."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from starloom.llm.lenient_json import NotJsonError, parse_value

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": 1}', {"a": 1}, ()),
        ('{"a": 1,}', {"a": 1}, ("trailing_comma",)),
        ("[1, 2,]", [1, 2], ("trailing_comma",)),
        ("{'a': 'b'}", {"a": "b"}, ("single_quotes",)),
        ("{`a`: `b`}", {"a": "b"}, ("single_quotes",)),
        ("{“a”: „b“}", {"a": "b"}, ("typographic_quotes",)),
        ("{a: 1, b_c: 2}", {"a": 1, "b_c": 2}, ("bare_key",)),
        ("[True, False, None]", [True, False, None], ("python_literal",)),
        ("[NaN, Infinity, -Infinity, undefined]", [None] * 4, ("not_a_number",)),
        ('{"a": 1, // why\n "b": 2 /* so */, # and\n "c": 3}', {"a": 1, "b": 2, "c": 3}, ("comment",)),
        ("｛＂a＂：１２，＂b＂：［］｝", {"a": 12, "b": []}, ("full_width", "typographic_quotes")),
        ('{"a": "x\ny"}', {"a": "x\ny"}, ("control_character",)),
        ('{"a": 1, "a": 1}', {"a": 1}, ("duplicate_key",)),
        ('{"a": 1\n "b": 2}', {"a": 1, "b": 2}, ("missing_comma",)),
        ('["C:\\Users\\Kim"]', ["C:\\Users\\Kim"], ("bad_escape",)),
        ('["it\\\'s"]', ["it's"], ("bad_escape",)),
        ("[+1]", [1], ("plus_sign",)),
        ("[1e400]", [None], ("not_a_number",)),
        ('["\\ud83d\\ude00"]', ["😀"], ()),
        ("[-1.5e3, 0]", [-1500.0, 0], ()),
        ("{}", {}, ()),
    ],
)
def test_each_slip_is_forgiven_by_name(text: str, value: Any, repairs: tuple[str, ...]) -> None:
    parse = parse_value(text)
    assert (parse.value, parse.repairs, parse.end) == (value, repairs, len(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "he said "hi" to me"}',
        '{"a": 1, "a": 2}',
        '{"a": true, "a": 1}',
        '["C:\\Users\\new"]',
        "{'a': 'it's'}",
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        '{"a": 01}',
        '{"a": 1.2.3}',
        '{"a": nul}',
        '{"a": word}',
        "[1 2]",
        "{1: 2}",
        "[,]",
        '{"a": }',
        '["a\\\nb"]',
        "[" * 200 + "]" * 200,
    ],
)
def test_what_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(NotJsonError) as caught:
        parse_value(text)
    assert not caught.value.is_truncated


@pytest.mark.parametrize("text", ["", "{", '{"a', '{"a"', '{"a":', '{"a": tr', "[1,", '["a\\', "[1 /* no end"])
def test_early_end_is_called_truncated(text: str) -> None:
    with pytest.raises(NotJsonError) as caught:
        parse_value(text)
    assert caught.value.is_truncated


@settings(deadline=None, max_examples=50)
@given(JSON_VALUES, st.booleans())
def test_every_json_value_is_read_as_the_strict_parser_reads_it(value: Any, ascii_only: bool) -> None:
    text = json.dumps([value], ensure_ascii=ascii_only)
    parse = parse_value(text)
    assert parse.value == json.loads(text)
    assert parse.repairs == ()


@settings(deadline=None, max_examples=25)
@given(JSON_VALUES)
def test_every_proper_prefix_is_refused(value: Any) -> None:
    text = json.dumps({"a": [value]})
    for end in range(len(text)):
        with pytest.raises(NotJsonError):
            parse_value(text[:end])


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=200))
def test_any_text_ends_in_a_value_or_a_reason(text: str) -> None:
    with contextlib.suppress(NotJsonError):
        assert isinstance(parse_value("{" + text).value, dict)
