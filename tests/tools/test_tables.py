from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from starloom.tools.tables import add_totals, as_decimal, money, totals_of, unreadable_of
from starloom.tools.toolset import ToolFailure


def table(*rows, **more):
    return {"title": "in/north", "columns": ["file", "currency", "total"], "rows": [list(row) for row in rows], **more}


def test_totals_are_summed_exactly_by_currency():
    sums = totals_of(table(("a", "EUR", "0.10"), ("b", "EUR", "0.20"), ("c", "GBP", 3)))
    assert sums == {"EUR": Decimal("0.30"), "GBP": Decimal(3)}


def test_stated_totals_are_checked():
    row = ("a", "EUR", "0.10")
    assert totals_of(table(row, totals={"EUR": "0.1"})) == {"EUR": Decimal("0.10")}
    with pytest.raises(ToolFailure, match=r"stated as EUR 0\.20 but its rows sum to EUR 0\.10"):
        totals_of(table(row, totals={"EUR": "0.20"}))
    with pytest.raises(ToolFailure, match="not a number"):
        totals_of(table(row, totals={"EUR": "ten"}))


def test_amount_that_is_no_number_is_refused():
    with pytest.raises(ToolFailure, match="where an amount belongs"):
        totals_of(table(("a", "EUR", "ten")))


def test_table_without_amounts_has_its_stated_totals():
    plain = {"title": "t", "columns": ["a"], "rows": [["x"]]}
    assert totals_of(plain) == {}
    assert totals_of({**plain, "totals": {"EUR": "1.00"}}) == {"EUR": Decimal(1)}


def test_unreadable_documents_name_their_table():
    assert unreadable_of([table(unreadable=[{"file": "x.pdf", "reason": "scan"}])]) == [
        {"file": "in/north/x.pdf", "reason": "scan"}
    ]


@pytest.mark.parametrize("cell", [None, True, "x", "NaN", "Infinity", ""])
def test_what_is_no_number_has_no_decimal(cell):
    assert as_decimal(cell) is None


@pytest.mark.properties
@given(st.lists(st.integers(-(10**12), 10**12), max_size=30))
def test_sum_over_tables_is_exact(cents):
    sums = [{"EUR": Decimal(item) / 100} for item in cents]
    assert add_totals(sums).get("EUR", Decimal(0)) == Decimal(sum(cents)) / 100


@pytest.mark.properties
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4))
def test_money_loses_nothing(amount):
    assert Decimal(money(amount)) == amount
    assert len(money(amount).partition(".")[2]) >= 2
