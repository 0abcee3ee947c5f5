"""Amounts of money, currencies and dates in a line of text, read exactly or not at all.

Pure. Called by `invoice_text`. What can be read in two ways is reported as unclear, never decided.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

_SIGNS = {"€": "EUR", "£": "GBP", "euro": "EUR", "us$": "USD", "ca$": "CAD", "au$": "AUD", "sfr.": "CHF", "fr.": "CHF"}
_CODES = (
    *("EUR", "USD", "GBP", "CHF", "SEK", "NOK", "DKK", "PLN", "CZK"),
    *("HUF", "RON", "CAD", "AUD", "NZD", "JPY", "CNY", "INR"),
)
DOLLAR = "$"

_CURRENCY = rf"(?:(?:{'|'.join(_CODES)}|Euro)(?![A-Za-z])|(?:US|CA|AU)?\$|€|£|S?Fr\.)"
_DIGITS = (
    r"\d{1,3}(?:,\d{3})+(?:\.\d{2})?"
    r"|\d{1,3}(?:\.\d{3})+(?:,\d{2})?"
    r"|\d{1,3}(?:['’\u00a0\u202f]\d{3})+(?:[.,]\d{2})?"
    r"|\d+(?:[.,]\d{2})?"
)
_AMOUNT = re.compile(
    rf"(?<![\w.,'’/:\-−])(?P<open>\()?(?P<sign1>[-−]\s?)?(?:(?P<before>{_CURRENCY})\s{{0,80}})?(?P<sign2>[-−]\s?)?"
    rf"(?P<digits>{_DIGITS})(?P<sign3>[-−](?![\d\w]))?(?P<close>\))?(?:\s?(?P<after>{_CURRENCY}))?"
    r"(?![\w%]|\s%|[.,'’/:\-−]\d)"
)
_ANY_CURRENCY = re.compile(rf"(?<![A-Za-z]){_CURRENCY}")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3} \Z")

_MONTHS = (
    ("jan", "january", "januar", "jänner"),
    ("feb", "february", "februar"),
    ("mar", "march", "mär", "märz", "mrz"),
    ("apr", "april"),
    ("may", "mai"),
    ("jun", "june", "juni"),
    ("jul", "july", "juli"),
    ("aug", "august"),
    ("sep", "sept", "september"),
    ("oct", "october", "okt", "oktober"),
    ("nov", "november"),
    ("dec", "december", "dez", "dezember"),
)
_MONTH_NUMBERS = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names}
_MONTH = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
DATE = re.compile(
    r"(?<![\w.])(?:"
    r"(?P<iso>\d{4}-\d{2}-\d{2})"
    r"|(?P<dotted>\d{1,2}\.\s?\d{1,2}\.\s?\d{4})"
    r"|(?P<slashed>\d{1,2}/\d{1,2}/\d{4})"
    rf"|(?P<day_first>\d{{1,2}}(?:st|nd|rd|th)?\.?\s+(?:{_MONTH})\.?,?\s+\d{{4}})"
    rf"|(?P<month_first>(?:{_MONTH})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}})"
    r")(?!\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount found in a line. `value` None: it can be read in two ways. `currency` is a code, `$`, or None."""

    start: int
    end: int
    value: Decimal | None
    currency: str | None


def amounts_in(line: str) -> Iterator[Amount]:
    """Yield the amounts of a line from left to right: numbers with cents, or with a currency beside them.

    Rates (`19 %`), quantities, dates and numbers inside words are none.
    """
    dates = [(found.start(), found.end()) for found in DATE.finditer(line)]
    for match in _AMOUNT.finditer(line):
        digits = match["digits"]
        if any(start <= match.start("digits") < end for start, end in dates):
            continue
        named = match["before"] or match["after"]
        if named is None and not re.search(r"[.,]\d{2}\Z|[.,]\d{3}\Z", digits):
            continue
        value = _value(match)
        if value is not None and match["before"] is None and _SPACED_THOUSANDS.search(line[: match.start("digits")]):
            value = None if len(re.split(r"[.,]", digits)[0]) == 3 else value
        yield Amount(_first_sign(match), match.end(), value, currency_code(named))


def _first_sign(match: re.Match[str]) -> int:
    """Return where the amount itself begins: the pattern may have taken white space before it."""
    return match.start() + len(match[0]) - len(match[0].lstrip())


def _value(match: re.Match[str]) -> Decimal | None:
    digits = match["digits"]
    if re.fullmatch(r"\d{1,3}[.,]\d{3}", digits):
        return None  # 1.234 is a thousand to one reader and one and a bit to another
    if bool(match["open"]) != bool(match["close"]) and (match["sign1"] or match["sign2"] or match["sign3"]):
        return None
    signs = [sign for sign in (match["sign1"], match["sign2"], match["sign3"]) if sign]
    if len(signs) > 1 or any(sign != sign.strip() for sign in signs):
        return None  # a dash that stands apart may be a minus or a mere dash
    has_cents = re.search(r"[.,]\d{2}\Z", digits) is not None
    plain = re.sub(r"\D", "", digits)
    value = Decimal(plain) / 100 if has_cents else Decimal(plain)
    return -value if signs or (match["open"] and match["close"]) else value


def currency_code(text: str | None) -> str | None:
    """Return the ISO code that a currency's sign or name means; a lone dollar sign stays `$`."""
    if text is None:
        return None
    return _SIGNS.get(text.lower(), text if text == DOLLAR else text.upper())


def currencies_in(text: str) -> set[str]:
    """Return every currency that a text names, as codes; a lone dollar sign as `$`."""
    return {code for match in _ANY_CURRENCY.finditer(text) if (code := currency_code(match[0])) is not None}


def date_at_start(text: str) -> date | None:
    """Return the date a text begins with, or None when there is none or it can be read in two ways."""
    match = DATE.match(text.strip())
    return None if match is None else date_of(match)


def date_of(match: re.Match[str]) -> date | None:
    """Return the date of a `DATE` match; None for a day that does not exist or 03/04/2026, which has two readings."""
    if match["iso"]:
        year, month, day = (int(part) for part in match["iso"].split("-"))
    elif match["dotted"]:
        day, month, year = (int(part) for part in match["dotted"].split("."))
    elif match["slashed"]:
        day, month, year = (int(part) for part in match["slashed"].split("/"))
        if day <= 12 and month <= 12 and day != month:
            return None
        day, month = (month, day) if month > 12 else (day, month)
    else:
        words = re.findall(r"\d+|[^\W\d]+", match[0])
        numbers = [int(word) for word in words if word.isdigit()]
        month = next(_MONTH_NUMBERS[word.lower()] for word in words if word.lower() in _MONTH_NUMBERS)
        day, year = numbers[0], numbers[-1]
    try:
        return date(year, month, day)
    except ValueError:
        return None
