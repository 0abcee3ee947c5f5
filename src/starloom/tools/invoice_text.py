"""Reads one invoice from its text: supplier, number, date, currency and grand total, or the reason why not.

Pure. Called by `invoices` for every document. The rules, in the order they apply:

    a document is an invoice            a quotation, order, reminder, delivery note or statement is not
    an amount has a label               the words before it in its line, above it, or in the column's head
    a label is of one class             due > grand > plain; anything with a word of `_NOT_TOTAL` is none of them
    the best class present decides      two different amounts in it: unclear
    due and grand differ                only when deposits, payments or credits on the page explain the difference
    a plain total before a tax line     unclear, unless the tax is said to be included
    one currency                        at the amount, in its label, or the only one in the document
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from starloom.tools.amounts import DATE, DOLLAR, amounts_in, currencies_in
from starloom.tools.invoice_labels import LabelClass, classify, label_currency
from starloom.tools.invoice_layout import Line, find_date, find_number, find_supplier, lines_of

_CLASSES = (LabelClass.DUE, LabelClass.GRAND, LabelClass.PLAIN)
_DOLLARS = frozenset({"USD", "CAD", "AUD", "NZD"})
_INVOICE_WORD = re.compile(r"(?i)\b(invoice|rechnung\w*|faktura|bill|credit note|gutschrift)\b")
_OTHER_DOCUMENT = re.compile(
    r"(?i)\W*(quotation|quote|offer|angebot|kostenvoranschlag|pro[- ]?forma( invoice)?|proformarechnung"
    r"|(payment )?reminder|(zahlungs)?erinnerung|\d?\.? ?mahnung|order( confirmation)?|auftragsbestätigung|bestellung"
    r"|delivery note|lieferschein|(account )?statement|statement of account|kontoauszug)"
    r"(\s+(no\.?|nr\.?|number|#)?\s*:?\s*[\w/.-]*\d[\w/.-]*)?\W*"
)
_CREDIT_NOTE = re.compile(r"(?i)\W*(credit note|credit memo|rechnungskorrektur|stornorechnung|gutschrift)\b.*")
_TITLE_LINES = 20


@dataclass(frozen=True, slots=True)
class Invoice:
    """What an invoice says. `supplier` and `date` are None when the document does not say them clearly."""

    supplier: str | None
    number: str
    date: date | None
    currency: str
    total: Decimal


@dataclass(frozen=True, slots=True)
class Unclear:
    """Why a text was not taken for an invoice that is read right."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Labelled:
    """An amount with its label's class and where it stands."""

    label: LabelClass
    value: Decimal | None
    currency: str | None
    line: int
    said_included: bool = False


def read_invoice(text: str) -> Invoice | Unclear:
    """Return what the invoice says, or why it is unclear; pages are separated by form feeds or nothing."""
    lines = lines_of(text)
    other = next((line.text.strip() for line in lines[:_TITLE_LINES] if _is_other_document(line)), None)
    if other is not None:
        return Unclear(f"it is not an invoice: it says {other[:60]!r}")
    if _INVOICE_WORD.search(text) is None:
        return Unclear("it does not say that it is an invoice")
    number = find_number(lines)
    if isinstance(number, tuple):
        return Unclear(f"it has several invoice numbers: {', '.join(number)}" if number else "it has no invoice number")
    labelled = list(_labelled_amounts(lines))
    total = _grand_total(labelled)
    if isinstance(total, Unclear):
        return total
    if total.value is None:
        return Unclear("its total can be read in two ways")
    if total.value > 0 and any(_CREDIT_NOTE.fullmatch(segment.text) for segment in _title_segments(lines)):
        return Unclear("it is a credit note with a positive total; whether it adds or takes away is unclear")
    currency = _currency(total.currency, text)
    if isinstance(currency, Unclear):
        return currency
    return Invoice(find_supplier(lines), number, find_date(lines), currency, total.value)


def _title_segments(lines: Sequence[Line]) -> Iterator[Line]:
    for line in lines[:_TITLE_LINES]:
        yield from line.segments()


def _is_other_document(line: Line) -> bool:
    return any(_OTHER_DOCUMENT.fullmatch(segment.text) for segment in line.segments())


def _labelled_amounts(lines: Sequence[Line]) -> Iterator[_Labelled]:
    """Yield every amount whose label has a class, in reading order."""
    for index, line in enumerate(lines):
        found = list(amounts_in(line.text))
        if not found:
            yield from _labels_above(lines, index)
            continue
        begin = 0
        for amount in found:
            label = line.text[begin : amount.start]
            begin = amount.end
            rest = line.text[amount.end :] if amount is found[-1] else ""
            yield from _with_class(label, rest, amount.value, amount.currency, index)


def _labels_above(lines: Sequence[Line], index: int) -> Iterator[_Labelled]:
    """Yield the amounts of the next line that stand below this line's labels: one below one, or column by column."""
    if index + 1 >= len(lines):
        return
    labels = lines[index].segments()
    below = list(amounts_in(lines[index + 1].text))
    words = len(lines[index + 1].segments())
    if not below or len(below) != len(labels) or words != len(below):
        return
    for label, amount in zip(labels, below, strict=True):
        yield from _with_class(label.text, "", amount.value, amount.currency, index + 1)


def _with_class(label: str, rest: str, value: Decimal | None, currency: str | None, line: int) -> Iterator[_Labelled]:
    kind, included = classify(label, rest)
    if kind is not LabelClass.OTHER:
        yield _Labelled(kind, value, currency or label_currency(label), line, included)


def _grand_total(labelled: Sequence[_Labelled]) -> _Labelled | Unclear:
    """Return the labelled amount that is the grand total."""
    present = {kind: [item for item in labelled if item.label is kind] for kind in _CLASSES}
    for kind in _CLASSES:
        values = {item.value for item in present[kind]}
        if len(values) > 1 and not (
            kind is LabelClass.PLAIN and (present[LabelClass.DUE] or present[LabelClass.GRAND])
        ):
            shown = ", ".join(sorted("an unclear one" if value is None else str(value) for value in values))
            return Unclear(f"it has several different totals: {shown}")
    best = next((items for kind in _CLASSES if (items := present[kind])), None)
    if best is None:
        return Unclear("it has no line that is clearly the grand total")
    chosen = next((item for item in best if item.currency), best[0])
    if chosen.label is LabelClass.DUE:
        return _due(chosen, present[LabelClass.GRAND] or present[LabelClass.PLAIN], labelled)
    if chosen.label is LabelClass.PLAIN:
        return _plain(chosen, labelled)
    return chosen


def _due(due: _Labelled, totals: Sequence[_Labelled], labelled: Sequence[_Labelled]) -> _Labelled | Unclear:
    """Return the amount due, if what else is called a total is the same or differs by what was already paid."""
    deductions = [abs(item.value) for item in labelled if item.label is LabelClass.DEDUCTION and item.value is not None]
    explained = {Decimal(0), sum(deductions, Decimal(0)), *deductions}
    for other in totals:
        if due.value is None or other.value is None or other.value - due.value not in explained:
            return Unclear(f"its total {other.value} and its amount due {due.value} differ and nothing explains it")
    return due


def _plain(total: _Labelled, labelled: Sequence[_Labelled]) -> _Labelled | Unclear:
    """Return a line that just says total, unless a tax that comes after it may have to be added."""
    taxes = [item for item in labelled if item.label is LabelClass.TAX and not item.said_included]
    nets = [item.value for item in labelled if item.label is LabelClass.NET and item.value is not None]
    added = sum((item.value for item in taxes if item.value is not None), Decimal(0))
    if any(item.line > total.line for item in taxes) and not any(net + added == total.value for net in nets):
        return Unclear("a tax line follows its total, so the total may be without tax")
    return total


def _currency(at_total: str | None, text: str) -> str | Unclear:
    """Return the total's currency: what stands at it, else the only one of the document."""
    everywhere = currencies_in(DATE.sub(" ", text))
    if at_total is not None and at_total != DOLLAR:
        return at_total
    if at_total == DOLLAR or everywhere == {DOLLAR}:
        named = everywhere & _DOLLARS
        return named.pop() if len(named) == 1 else Unclear("it says '$' without saying which country's dollar")
    named = everywhere - {DOLLAR}
    if len(named) == 1:
        return named.pop()
    if not named:
        return Unclear("it does not say its currency")
    return Unclear(f"it names several currencies ({', '.join(sorted(named))}) and none at the total")
