import math

import pytest
from hypothesis import given, settings, strategies as st

from starloom.errors import StoreError
from starloom.journal.codec import dumps, loads, loads_all

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=15
)


@pytest.mark.properties
@settings(deadline=None)
@given(VALUES)
def test_value_survives_the_round_trip(value):
    back = loads(dumps(value))
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.properties
@settings(deadline=None)
@given(st.lists(VALUES, max_size=5))
def test_many_are_as_one_by_one(values):
    assert loads_all([dumps(value) for value in values]) == values


def test_text_is_compact_and_readable():
    assert dumps({"名": "考虑", "n": [1, 2.5, None]}) == '{"名":"考虑","n":[1,2.5,null]}'


def test_not_a_number_survives():
    assert math.isnan(loads(dumps(math.nan)))


def test_deep_nesting_survives():
    value: list = []
    for _ in range(500):
        value = [value]
    assert loads(dumps(value)) == value
    assert loads_all([dumps(value), "1"]) == [value, 1]


@pytest.mark.parametrize("text", ["", "{", '{"a":1', "tru", '{"a":1}}', "1,2"])
def test_damaged_text_is_an_error(text):
    with pytest.raises(StoreError, match="damaged"):
        loads(text)
    with pytest.raises(StoreError, match="damaged"):
        loads_all(["1", text, "2"])


@pytest.mark.parametrize("value", [object(), {"a": {1, 2, object()}}, {("a",): object()}])
def test_value_without_json_form_is_an_error(value):
    with pytest.raises(StoreError, match="cannot be stored as JSON"):
        dumps(value)
