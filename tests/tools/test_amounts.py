from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from starloom.tools.amounts import amounts_in, currencies_in, date_at_start


@pytest.mark.parametrize(
    ("line", "value", "currency"),
    [
        ("Total 1,234.56", "1234.56", None),
        ("Summe 1.234,56 €", "1234.56", "EUR"),
        ("EUR 1'234.50", "1234.50", "EUR"),
        ("1\u202f234,50 EUR", "1234.50", "EUR"),
        ("12.00-", "-12.00", None),
        ("-12,00 €", "-12.00", "EUR"),
        ("€-12.00", "-12.00", "EUR"),
        ("(1,200.00)", "-1200.00", None),
        ("£900", "900", "GBP"),
        ("US$ 12.00", "12.00", "USD"),
        ("$12.00", "12.00", "$"),
        ("1,234,567.89 CHF", "1234567.89", "CHF"),
        ("1.234.567 EUR", "1234567", "EUR"),
        ("paid EUR 12.00.", "12.00", "EUR"),
    ],
)
def test_amount_is_read_exactly(line, value, currency):
    (amount,) = amounts_in(line)
    assert amount.value == Decimal(value)
    assert amount.currency == currency


@pytest.mark.parametrize(
    "line",
    [
        "19 % VAT",
        "19,00 %",
        "30.11.2026",
        "2026-10-03",
        "INV-2026.10",
        "A12.00",
        "3 items",
        "1,234,56",
        "10.00/17",
        "v1.00.3",
    ],
)
def test_what_is_no_amount_is_not_read(line):
    assert list(amounts_in(line)) == []


@pytest.mark.parametrize("line", ["EUR 1.234", "1,234 EUR", "Total - 12.00", "1 234,56 EUR", "--12.00"])
def test_amount_with_two_readings_is_unclear(line):
    assert [amount.value for amount in amounts_in(line)] in ([None], [])


def test_several_amounts_keep_their_places():
    line = "Net 100.00 VAT 19.00 Total 119.00 EUR"
    found = list(amounts_in(line))
    assert [amount.value for amount in found] == [Decimal(100), Decimal(19), Decimal(119)]
    assert [line[amount.start : amount.end] for amount in found] == ["100.00", "19.00", "119.00 EUR"]


@pytest.mark.properties
@given(st.integers(-(10**10), 10**10), st.sampled_from([",.", ".,", "'.", "\u202f,", " ,"]), st.booleans())
def test_every_spelling_of_an_amount_is_read_back(cents, signs, grouped):
    thousands, point = signs
    if thousands == " ":  # a plain space separates columns too
        grouped = False
    whole = f"{abs(cents) // 100:,}".replace(",", thousands if grouped else "")
    text = f"Total: {'-' if cents < 0 else ''}{whole}{point}{abs(cents) % 100:02} EUR"
    (amount,) = amounts_in(text)
    assert amount.value == Decimal(cents) / 100


@pytest.mark.properties
@given(st.text(max_size=60))
def test_any_line_is_read_without_an_error(line):
    for amount in amounts_in(line):
        assert 0 <= amount.start < amount.end <= len(line)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-10-03", date(2026, 10, 3)),
        ("03.10.2026", date(2026, 10, 3)),
        ("3. Oktober 2026", date(2026, 10, 3)),
        ("3rd October 2026", date(2026, 10, 3)),
        ("Oct 3, 2026 by post", date(2026, 10, 3)),
        ("1. März 2026", date(2026, 3, 1)),
        ("31/10/2026", date(2026, 10, 31)),
        ("10/31/2026", date(2026, 10, 31)),
        ("05/05/2026", date(2026, 5, 5)),
        ("03/04/2026", None),
        ("31.02.2026", None),
        ("soon", None),
        ("12345-10-03", None),
    ],
)
def test_date(text, day):
    assert date_at_start(text) == day


def test_currencies_are_whole_words():
    assert currencies_in("EUROPE in EUR, £5 and $3, CHFX") == {"EUR", "GBP", "$"}


@pytest.mark.parametrize("piece", [" ", "1", "1,111", "EUR ", "(-", "9'999", "- ", "3. ", "€"])
def test_long_line_is_read_soon(piece):
    """With a pattern that backtracks this does not end."""
    assert all(amount.value is not None or amount.currency for amount in amounts_in(piece * (20_000 // len(piece))))
