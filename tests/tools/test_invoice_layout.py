from datetime import date

import pytest
from hypothesis import given, strategies as st

from starloom.tools.invoice_layout import Line, find_date, find_number, find_supplier, lines_of


def test_wide_gaps_part_a_line_and_columns_are_kept():
    assert Line("  Alpha Ltd    Beta Inc.").segments() == [Line("Alpha Ltd", 2), Line("Beta Inc.", 15)]
    assert Line("a\tb | c").segments() == [Line("a", 0), Line("b", 2), Line("c", 6)]


def test_number_stands_behind_beside_or_below_its_label():
    for text in ("Invoice no: A-1", "Invoice no.    A-1", "Invoice number\nA-1", "Rechnungs-Nr. : A-1", "INVOICE A-1"):
        assert find_number(lines_of(text)) == "A-1", text
    assert find_number(lines_of("Invoice no: A-1\nInvoice no: B-2")) == ("A-1", "B-2")
    assert find_number(lines_of("Invoice date: 2026-10-03\nOrder no: 7")) == ()


def test_date_of_the_invoice_is_not_another_date():
    text = "Due date: 30.11.2026\nDelivery date: 01.10.2026\nInvoice date: 03.10.2026"
    assert find_date(lines_of(text)) == date(2026, 10, 3)
    assert find_date(lines_of("Date: 2026-10-03\nDate: 2026-10-04")) is None
    assert find_date(lines_of("Bonn, den 3. Oktober 2026")) == date(2026, 10, 3)


def test_recipient_is_not_the_supplier():
    text = "Invoice\nBill to:\nBeta GmbH\nWeg 1\n\nSeller: Alpha & Co"
    assert find_supplier(lines_of(text)) == "Alpha & Co"
    assert find_supplier(lines_of("Bill to: Beta GmbH\nInvoice 7")) is None
    assert find_supplier(lines_of("")) is None


@pytest.mark.properties
@given(st.text(max_size=120))
def test_any_text_has_lines_and_no_error(text):
    lines = lines_of(text)
    find_number(lines)
    find_date(lines)
    find_supplier(lines)
    assert all(segment.text for line in lines for segment in line.segments())
