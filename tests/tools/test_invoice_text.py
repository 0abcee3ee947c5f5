from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from starloom.tools.invoice_text import Invoice, Unclear, read_invoice

HEAD = "Muster GmbH\nInvoice no. A-1\nDate: 2026-10-03\n\n"


def total_of(body: str) -> Decimal | str:
    invoice = read_invoice(HEAD + body)
    return invoice.total if isinstance(invoice, Invoice) else invoice.reason


@pytest.mark.parametrize(
    ("body", "total"),
    [
        ("Subtotal EUR 100.00\nVAT 19% EUR 19.00\nTotal EUR 119.00", "119.00"),
        ("Zwischensumme: 100,00 €\nMwSt 19 %: 19,00 €\nSumme: 119,00 €", "119.00"),
        ("Net 100.00 VAT 19.00 Total 119.00 EUR", "119.00"),
        ("Netto    MwSt    Brutto\n100,00 €    19,00 €    119,00 €", "119.00"),
        ("Total care package    EUR 500.00\nGrand total    EUR 700.00", "700.00"),
        ("Total hours: 12.50\nTotal EUR 700.00", "700.00"),
        ("Total net: EUR 100.00\nTotal VAT: EUR 19.00\nTotal: EUR 119.00", "119.00"),
        ("Total (incl. 19 % VAT): EUR 119.00\nVAT included: EUR 19.00", "119.00"),
        ("Gesamtbetrag inkl. MwSt. EUR 119,00\ndarin enthaltene MwSt. EUR 19,00", "119.00"),
        ("Total EUR 119.00\nVAT EUR 19.00 included", "119.00"),
        ("Net EUR 100.00\nTotal EUR 119.00\nVAT EUR 19.00", "119.00"),
        ("Invoice total EUR 1,000.00\nDeposit paid EUR 300.00\nBalance due EUR 700.00", "700.00"),
        ("Invoice total EUR 1,000.00\nDeposit EUR -200.00\nCredit EUR -100.00\nBalance due EUR 700.00", "700.00"),
        ("Carried forward EUR 400.00\nBrought forward EUR 400.00\nTotal EUR 900.00", "900.00"),
        ("Total\nEUR 900.00", "900.00"),
        ("Amount due by 30.11.2026: EUR 900.00\nDue date: 30.11.2026", "900.00"),
        ("Shipping EUR 10.00\nDiscount EUR -5.00\nTotal payable EUR 900.00", "900.00"),
        ("Zahlbetrag                                EUR 1.900,00", "1900.00"),
        ("Bitte überweisen Sie.\nRechnungsbetrag 1.900,00 EUR", "1900.00"),
        ("Credit for goods  EUR -30.00\nTotal EUR -30.00", "-30.00"),
        ("TOTAL (EUR)    900.00\nTOTAL (EUR)    900.00", "900.00"),
    ],
)
def test_grand_total_is_found(body, total):
    assert total_of(body) == Decimal(total)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("Subtotal EUR 100.00\nVAT EUR 19.00", "no line that is clearly the grand total"),
        ("Total EUR 100.00\nTotal EUR 120.00", "several different totals"),
        ("Total EUR 100.00\nVAT EUR 19.00", "may be without tax"),
        ("Invoice total EUR 1,000.00\nAmount due EUR 700.00", "nothing explains it"),
        ("Total EUR 1.000", "two ways"),
        ("Total 1 234,56 EUR", "two ways"),
        ("Total 100.00", "does not say its currency"),
        ("Total $100.00", "which country"),
        ("Total 100.00\nPrices in EUR and USD", "several currencies"),
        ("Invoice no. B-2\nTotal EUR 100.00", "several invoice numbers: A-1, B-2"),
        ("Your Total Solution EUR 100.00", "no line that is clearly"),
    ],
)
def test_what_is_not_clear_is_not_guessed(body, reason):
    assert reason in str(total_of(body))


@pytest.mark.parametrize(
    "title",
    ["QUOTATION", "Angebot Nr. 12", "Pro forma invoice", "2. Mahnung", "Statement of account", "Delivery note 7"],
)
def test_other_documents_are_no_invoices(title):
    text = f"Muster GmbH\n{title}\nInvoice no. A-1\nTotal EUR 100.00"
    assert isinstance(read_invoice(text), Unclear)


def test_document_without_number_or_the_word_is_no_invoice():
    assert read_invoice("Invoice\nTotal EUR 1.00") == Unclear("it has no invoice number")
    assert read_invoice("Menu 12\nTotal EUR 1.00") == Unclear("it does not say that it is an invoice")
    assert isinstance(read_invoice(""), Unclear)


def test_credit_note_with_a_positive_total_is_unclear():
    text = "Muster GmbH\nCREDIT NOTE\nCredit note no. C-1\nTotal EUR {}"
    assert isinstance(read_invoice(text.format("10.00")), Unclear)
    assert read_invoice(text.format("-10.00")) == Invoice("Muster GmbH", "C-1", None, "EUR", Decimal(-10))


def test_dollar_takes_its_country_from_the_document():
    invoice = read_invoice(HEAD + "All amounts in USD\nTotal $100.00")
    assert isinstance(invoice, Invoice)
    assert invoice.currency == "USD"


@pytest.mark.parametrize(
    ("text", "supplier", "number", "day"),
    [
        (
            "From:                Bill to:\nAlpha Ltd            Beta Inc.\n\nInvoice no.    Date    Due date\n"
            "A-7    2 October 2026    1 November 2026\n",
            "Alpha Ltd",
            "A-7",
            date(2026, 10, 2),
        ),
        (
            "Bill to:\nBeta Inc.\nRoad 1\nTown\n\n\n\n\nAlpha Ltd\nInvoice # 77\nIssued on 5 Oct 2026\n",
            None,
            "77",
            date(2026, 10, 5),
        ),
        (
            "Alpha AG · Weg 1 · Bern\nBeta GmbH\nRechnung Nr. 12/34\nBern, den 5. Oktober 2026\n",
            "Alpha AG",
            "12/34",
            date(2026, 10, 5),
        ),
        ("Invoice 2026-17\nVendor: Gamma plc\nDate: 03/04/2026\n", "Gamma plc", "2026-17", None),
        ("The Corner Shop\nInvoice X9\nDelivery date: 01.10.2026\n", "The Corner Shop", "X9", None),
    ],
)
def test_head_of_the_invoice(text, supplier, number, day):
    invoice = read_invoice(text + "Total EUR 10.00\n")
    assert isinstance(invoice, Invoice)
    assert (invoice.number, invoice.date) == (number, day)
    if supplier is not None:
        assert invoice.supplier == supplier


@pytest.mark.properties
@given(st.text(alphabet="Total EURinvoce 123.,-()\n\t€:%", max_size=200))
def test_any_text_is_read_without_an_error(text):
    assert isinstance(read_invoice(text), Invoice | Unclear)


@pytest.mark.properties
@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 10**8), st.booleans())
def test_decoys_never_become_the_total(net, deposit, shipping, in_german):
    def amount(cents: int) -> str:
        plain = f"{cents // 100:,}.{cents % 100:02}"
        return plain.translate(str.maketrans(",.", ".,")) if in_german else plain

    names = (
        ("Zwischensumme", "Versand", "Anzahlung", "Gesamtbetrag")
        if in_german
        else ("Subtotal", "Shipping", "Deposit", "Grand total")
    )
    values = (net, shipping, deposit, net + shipping)
    body = "\n".join(f"{name}: {amount(value)} EUR" for name, value in zip(names, values, strict=True))
    assert total_of(body) == Decimal(net + shipping) / 100


REPEATED = [
    " ",
    "1",
    "1,111",
    "a-",
    "Total ",
    "EUR ",
    "Invoice no ",
    "3. ",
    "A, ",
    "| ",
    "(-",
    "\t",
    "9'999",
    "VAT 19 % ",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_hostile_document_is_given_up_soon(piece):
    """With a pattern that backtracks this does not end; a line of 50,000 spaces once took minutes."""
    assert isinstance(read_invoice(HEAD + piece * (50_000 // len(piece)) + "\nTotal x"), Unclear)
