"""Where things stand on an invoice: lines, their columns, and the fields found by a label beside or above them.

Pure. Called by `invoice_text`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from starloom.tools.amounts import DATE, amounts_in, date_at_start, date_of

T = TypeVar("T")

_GAP = re.compile(r"\s{2,}|\t|\s*\|\s*|\f")
_NEAR_COLUMNS = 6
_RECIPIENT_LINES = 5
_HEAD_LINES = 25
_LONGEST_LINE = 1_000
_MOST_LINES = 20_000

_NUMBER_LABEL = re.compile(
    r"(?i)\W*(?:(?:tax |credit )?(?:invoice|bill)[\s-]*(?:number|num\.?|no\.?|nr\.?|#|id)|inv\.?\s*(?:no\.?|#)"
    r"|rechnungs?[\s-]*(?:nummer|nr\.?)|re\.?-?nr\.?|beleg-?\s*(?:nummer|nr\.?)|faktura-?\s*(?:nummer|nr\.?)"
    r"|credit note\s*(?:number|no\.?|#)|gutschrifts?-?\s*(?:nummer|nr\.?))(?![a-zäöü])"
)
_NUMBER_TITLE = re.compile(r"(?i)\W*(?:tax invoice|invoice|rechnung|credit note|gutschrift)(?![a-zäöü])")
_NUMBER = re.compile(r"(?i)[\s:.#]*((?=[\w/.-]*\d)[a-z0-9](?:[\w/.-]*\w)?(?: \d{2,}(?!\S))?)(?!\w)")
_DATE_LABEL = re.compile(
    r"(?i)\W*(?:(?:invoice|bill|issue|billing)\s*date|date of (?:issue|invoice)|date issued|issued(?: on)?|tax point"
    r"|rechnungs-?\s*datum|ausstellungs-?datum|beleg-?datum)(?![a-zäöü])"
)
_DATE_WORD = re.compile(r"(?i)\W*(?:date|dated|datum)(?![a-zäöü])")
_PLACE_AND_DATE = re.compile(r"[A-ZÄÖÜ][\w .\-/]*,\s*(?:den\s+)?\Z")
_SUPPLIER_LABEL = re.compile(
    r"(?i)\W*(?:supplier|seller|vendor|from|issued by|lieferant|verkäufer|absender|rechnungssteller|aussteller)"
    r"\s*(?::|\Z)"
)
_RECIPIENT_LABEL = re.compile(
    r"(?i)\W*(?:bill(?:ed)? to|invoice(?:d)? to|sold to|ship to|deliver(?:ed)? to|customer|client|to|attn\.?|for|kunde"
    r"|kundin|empfänger|rechnung an|rechnungsempfänger|an|lieferadresse|rechnungsadresse|käufer)\s*(?::|\Z)"
)
_COMPANY = re.compile(
    r"(?<!\w)(?:GmbH(?: & Co\. ?KG)?|mbH|AG|KG|OHG|UG|GbR|e\.\s?K\.|e\.\s?V\.|SE|Ltd\.?|Limited|LLC|LLP|PLC|plc|Inc\.?"
    r"|Corp\.?|Co\.|S\.?A\.?R\.?L\.?|S\.A\.|SAS|B\.V\.|N\.V\.|AB|A/S|Oy|S\.r\.l\.|& Sons|& Söhne|& Co)(?!\w)"
)
_TITLE = re.compile(
    r"(?i)\W*(?:tax |final |original |kopie |copy )?(?:invoice|rechnung|faktura|bill|credit note|gutschrift|page|seite"
    r"|schlussrechnung|abschlussrechnung)\b.*"
)
_SENDER_LINE = re.compile(r"\s+[·•|*–-]\s+|,\s+|;\s+")


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a part of one, and the column it begins at."""

    text: str
    column: int = 0

    def segments(self) -> list["Line"]:
        """Return the parts of the line that wide gaps keep apart."""
        parts: list[Line] = []
        begin = 0
        for gap in [*_GAP.finditer(self.text), None]:
            part = self.text[begin : gap.start() if gap else len(self.text)]
            if part.strip():
                indent = len(part) - len(part.lstrip())
                parts.append(Line(part.strip(), self.column + begin + indent))
            begin = gap.end() if gap else begin
        return parts


def lines_of(text: str) -> list[Line]:
    """Return the lines that are not empty; what no page is wide enough for is cut off, and so is what follows."""
    lines = (line[:_LONGEST_LINE].rstrip() for line in re.split(r"[\n\f]", text))
    return [Line(line) for line in lines if line][:_MOST_LINES]


def find_number(lines: Sequence[Line]) -> str | tuple[str, ...]:
    """Return the invoice's number, or the several different ones found; an empty tuple when there is none."""
    for label in (_NUMBER_LABEL, _NUMBER_TITLE):
        found = tuple(dict.fromkeys(_fields(lines, label, _number_at_start, below=label is _NUMBER_LABEL)))
        if found:
            return found[0] if len(found) == 1 else found
    return ()


def find_date(lines: Sequence[Line]) -> date | None:
    """Return the invoice's date, or None when there is none or it is not clear."""
    for label in (_DATE_LABEL, _DATE_WORD):
        found = set(_fields(lines, label, date_at_start, below=True))
        if found:
            return found.pop() if len(found) == 1 else None
    alone = {
        written
        for line in lines[:_HEAD_LINES]
        for segment in line.segments()
        for match in DATE.finditer(segment.text)
        if match.end() == len(segment.text)
        and (match.start() == 0 or _PLACE_AND_DATE.match(segment.text[: match.start()]))
        if (written := date_of(match)) is not None
    }
    return alone.pop() if len(alone) == 1 else None


def find_supplier(lines: Sequence[Line]) -> str | None:
    """Return who wrote the invoice: by a label, else the first company not the recipient, else the first line."""
    head = [line.segments() for line in lines[:_HEAD_LINES]]
    labelled = next(_labelled_names(head), None)
    if labelled is not None:
        return labelled
    recipients = _recipients(head)
    ours = [
        segment.text
        for row, segments in enumerate(head)
        for segment in segments
        if (row, segment.column) not in recipients and not _TITLE.fullmatch(segment.text)
    ]
    company = next((_company_name(text) for text in ours if _COMPANY.search(text)), None)
    return company or next((text for text in ours[:1] if _is_name(text)), None)


def _fields(
    lines: Sequence[Line], label: re.Pattern[str], read: Callable[[str], T | None], *, below: bool
) -> Iterator[T]:
    """Yield what stands after a label: behind it, in the next column, or below it."""
    for index, line in enumerate(lines):
        segments = line.segments()
        for position, segment in enumerate(segments):
            match = label.match(segment.text)
            if match is None:
                continue
            rest = segment.text[match.end() :].strip(" :.#")
            candidates = [rest] if rest else [item.text for item in segments[position + 1 : position + 2]]
            if not rest and below and index + 1 < len(lines):
                candidates += _below(segments, position, lines[index + 1].segments())
            value = next((value for text in candidates if (value := read(text)) is not None), None)
            if value is not None:
                yield value


def _below(heads: Sequence[Line], position: int, under: Sequence[Line]) -> list[str]:
    """Return what stands below one of a line's heads: its place in a row of as many values, else its column."""
    if len(under) == len(heads):
        return [under[position].text]
    return [item.text for item in under if abs(item.column - heads[position].column) <= _NEAR_COLUMNS]


def _number_at_start(text: str) -> str | None:
    match = _NUMBER.match(text)
    if match is None or DATE.match(text.strip(" :.#")):
        return None
    return match[1]


def _labelled_names(head: Sequence[Sequence[Line]]) -> Iterator[str]:
    """Yield the names that a label such as "Supplier:" introduces."""
    for row, segments in enumerate(head):
        for position, segment in enumerate(segments):
            match = _SUPPLIER_LABEL.match(segment.text)
            if match is None:
                continue
            rest = segment.text[match.end() :].strip()
            near = [item.text for item in segments[position + 1 : position + 2] if not _is_label(item.text)]
            under = [
                item.text
                for item in (head[row + 1] if row + 1 < len(head) else [])
                if abs(item.column - segment.column) <= _NEAR_COLUMNS
            ]
            for text in [rest] if rest else [*near, *under]:
                if _is_name(text):
                    yield _company_name(text)
                    break


def _recipients(head: Sequence[Sequence[Line]]) -> set[tuple[int, int]]:
    """Return row and column of every segment that belongs to the recipient's address."""
    found: set[tuple[int, int]] = set()
    for row, segments in enumerate(head):
        for segment in segments:
            if _RECIPIENT_LABEL.match(segment.text) is None:
                continue
            found.add((row, segment.column))
            for below in range(row + 1, min(row + 1 + _RECIPIENT_LINES, len(head))):
                found |= {
                    (below, item.column) for item in head[below] if abs(item.column - segment.column) <= _NEAR_COLUMNS
                }
            found |= {(row, item.column) for item in segments if item.column > segment.column}
    return found


def _is_label(text: str) -> bool:
    return text.endswith(":") or _RECIPIENT_LABEL.match(text) is not None


def _is_name(text: str) -> bool:
    if _TITLE.fullmatch(text) or _is_label(text) or DATE.search(text) or any(amounts_in(text)):
        return False
    return sum(sign.isalpha() for sign in text) >= 3


def _company_name(text: str) -> str:
    """Return the company of a sender line ("Müller GmbH · Hauptstr. 1 · Berlin"): the part that bears its form."""
    parts = [part.strip() for part in _SENDER_LINE.split(text) if part.strip()]
    return next((part for part in parts if _COMPANY.search(part)), parts[0] if parts else text)
