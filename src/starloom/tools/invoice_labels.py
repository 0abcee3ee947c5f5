"""What the words before an amount on an invoice mean: the total, something that is not it, or nothing known.

Pure. Called by `invoice_text`. A label counts as a total only when *every* word of it is known, so that an item called
"Total care package" is none. English and German.
"""

import re
from enum import StrEnum

from starloom.tools.amounts import DATE, currencies_in


class LabelClass(StrEnum):
    """The class of a label."""

    DUE = "due"
    GRAND = "grand"
    PLAIN = "plain"
    NET = "net"
    TAX = "tax"
    DEDUCTION = "deduction"
    OTHER = "other"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DUE = _words(
    "due payable pay zahlen zahlender zahlbetrag zahlungsbetrag restbetrag restzahlung restforderung überweisen "
    "überweisungsbetrag remaining"
)
_GRAND = _words(
    "grand gross brutto bruttobetrag bruttosumme gesamtbetrag gesamtsumme gesamtpreis rechnungsbetrag rechnungssumme "
    "endbetrag endsumme rechnungsendbetrag gesamtbruttobetrag"
)
_PLAIN = _words("total summe gesamt totalbetrag sum")
_TAX = _words("tax taxes vat mwst ust umsatzsteuer mehrwertsteuer gst steuer steuerbetrag steuern mwstbetrag ustbetrag")
_NET = _words(
    "subtotal net netto nettobetrag nettosumme nettowert zwischensumme warenwert gesamtnetto nettogesamtbetrag"
)
_DEDUCTION = _words(
    "deposit deposits prepayment prepaid advance anzahlung anzahlungen vorauszahlung abschlagszahlung abschlag paid "
    "bezahlt gezahlt received erhalten erhaltene credit gutschrift payment payments zahlung zahlungen guthaben"
)
_NOT_TOTAL = _words(
    "sub discount rabatt nachlass skonto carried brought forward übertrag shipping freight delivery versand "
    "versandkosten fracht page seite hours stunden items positionen quantity menge previous vortrag saldovortrag excl "
    "excluding exkl exklusive zzgl ohne without before less abzüglich abzgl savings fee late instalment rate"
)
_FILLER = _words(
    "the of this amount amounts balance invoice total sum by on until in is are and to for your our within days now "
    "please at latest eur usd gbp chf sek nok dkk pln czk cad aud euro betrag summe rechnung bis zum zur den der die "
    "das dem und ist bitte zu noch sofort ihr ihre für tage tagen innerhalb von spätestens offener gesamter fällig "
    "fälliger gesamt gesamtbetrag all"
)
_INCLUDED = _words(
    "incl including includes included inclusive inc inkl inklusive einschl einschließlich enthalten "
    "enthaltene enthält darin davon thereof contains"
)
_TAX_FILLER = _words("of all gesetzl gesetzlicher gesetzliche der die the applicable")
_WORD = re.compile(r"[a-zäöüß]+")


def classify(label: str, rest: str = "") -> tuple[LabelClass, bool]:
    """Return the class of a label, and whether it says that a tax is included.

    Args:
        label: the words before the amount.
        rest: the words after it in its line, where "VAT included" may stand.
    """
    words, included = _label_words(label)
    after, included_after = _label_words(rest)
    if not set(after) <= _FILLER | _INCLUDED:
        return LabelClass.OTHER, False
    included = included or included_after or bool(set(after) & _INCLUDED)
    bag = set(words)
    if not bag:
        return LabelClass.OTHER, included
    if bag & _DEDUCTION:
        return LabelClass.DEDUCTION, included
    if bag & _NOT_TOTAL:
        return LabelClass.NET if "sub" in bag and "total" in bag else LabelClass.OTHER, included
    if bag & _NET:
        return LabelClass.NET, included
    if bag & _TAX:
        return LabelClass.TAX, included
    return _total_class(bag, taxed=included), included


def _total_class(bag: set[str], *, taxed: bool) -> LabelClass:
    if not bag <= _DUE | _GRAND | _PLAIN | _FILLER:
        return LabelClass.OTHER
    if bag & _DUE:
        return LabelClass.DUE
    if bag & _GRAND or (bag & _PLAIN and (taxed or bag & {"invoice", "amount", "rechnung"})):
        return LabelClass.GRAND
    return LabelClass.PLAIN if bag & _PLAIN else LabelClass.OTHER


def label_currency(label: str) -> str | None:
    """Return the one currency that a label names ("Total (EUR)"), or None."""
    named = currencies_in(label)
    return named.pop() if len(named) == 1 else None


def _label_words(text: str) -> tuple[list[str], bool]:
    """Return a label's words in lower case without dates, and without the words that say a tax is included."""
    plain = DATE.sub(" ", text).lower()
    plain = re.sub(r"(?<=[a-zäöüß])[-‐](?=[a-zäöüß])", "", plain).replace("mw.st", "mwst").replace("u.st", "ust")
    words = _WORD.findall(plain)
    kept: list[str] = []
    included = False
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word not in _INCLUDED:
            kept.append(word)
            continue
        end = position
        while end < len(words) and words[end] in _TAX | _TAX_FILLER:
            end += 1
        if any(item in _TAX for item in words[position:end]):
            included, position = True, end
        elif any(item in _TAX for item in kept):
            included = True
        else:
            kept.append(word)
    return kept, included
