import pytest

from starloom.tools.invoice_labels import LabelClass, classify, label_currency


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Amount due by 30.11.2026:", LabelClass.DUE),
        ("Noch zu zahlender Betrag", LabelClass.DUE),
        ("Grand total (EUR)", LabelClass.GRAND),
        ("Total incl. 19 % VAT", LabelClass.GRAND),
        ("Gesamtbetrag inkl. gesetzl. MwSt.", LabelClass.GRAND),
        ("Invoice total", LabelClass.GRAND),
        ("TOTAL", LabelClass.PLAIN),
        ("Summe:", LabelClass.PLAIN),
        ("Sub-Total", LabelClass.NET),
        ("Sub Total", LabelClass.NET),
        ("Zwischensumme", LabelClass.NET),
        ("Total excl. VAT", LabelClass.OTHER),
        ("zzgl. 19 % MwSt.", LabelClass.OTHER),
        ("19 % USt.", LabelClass.TAX),
        ("Deposit received 1 September 2026", LabelClass.DEDUCTION),
        ("Anzahlung vom 01.09.2026", LabelClass.DEDUCTION),
        ("Carried forward", LabelClass.OTHER),
        ("Übertrag", LabelClass.OTHER),
        ("Total hours", LabelClass.OTHER),
        ("Total care package", LabelClass.OTHER),
        ("Amount", LabelClass.OTHER),
        ("", LabelClass.OTHER),
    ],
)
def test_class_of_a_label(label, expected):
    assert classify(label)[0] is expected


def test_tax_that_is_included_is_noticed_on_either_side():
    assert classify("VAT included") == (LabelClass.TAX, True)
    assert classify("VAT", "included") == (LabelClass.TAX, True)
    assert classify("Total incl. VAT") == (LabelClass.GRAND, True)
    assert classify("Total", "a word that is not known") == (LabelClass.OTHER, False)


def test_currency_of_a_label():
    assert label_currency("Total (EUR)") == "EUR"
    assert label_currency("EUR or USD") is None
    assert label_currency("Total") is None
