"""The cells of a workbook: what differs between two versions of one, and putting single cells back into a third.

Called by `effects`, when a workbook is written over, and by `taking_back`, when someone else has worked in it since.
A cell is put back by changing its element in the sheet's XML and nothing else, so charts, pictures, macros and looks
stay; the result is read again and only kept when exactly the wanted cells differ. Needs the `office` extra.

    ["n", "12.5"] a number or date · ["s", "text"] · ["f", "=A1+1"] a formula · ["b", "1"] · ["e", "#N/A"] · None: empty
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree
from xml.sax.saxutils import escape

SUFFIXES = frozenset({".xlsx", ".xlsm"})

Value: TypeAlias = list[str] | None
Sheets: TypeAlias = dict[str, dict[str, Value]]  # title → coordinate → value; empty cells are left out
Changes: TypeAlias = dict[str, dict[str, list[Value]]]  # title → coordinate → [before, after]

_MOST_CELLS = 200_000
_WIDEST = 5_000_000  # cells gone through, empty ones too
_LARGEST_UNPACKED_BYTES = 300 * 1024 * 1024
_OTHER = "?"  # a kind of cell that is told apart and cannot be written, such as an array formula
_CELL = re.compile(rb"<((?:\w+:)?)c((?:\s[^>]*?)?)(?:/>|>(.*?)</\1c>)", re.DOTALL)
_ROW = re.compile(rb"<((?:\w+:)?)row((?:\s[^>]*?)?)(?:/>|>(.*?)</\1row>)", re.DOTALL)
_DATA = re.compile(rb"<((?:\w+:)?)sheetData\s*(?:/>|>(.*?)</\1sheetData>)", re.DOTALL)
_REFERENCE = re.compile(rb'\br="([A-Z]*)([0-9]+)"')
_STYLE = re.compile(rb'\bs="[0-9]+"')
_CACHED = re.compile(rb"(<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>))\s*<(?:\w+:)?v(?:/>|>[^<]*</(?:\w+:)?v>)")
_DAMAGED = (  # what reading a damaged, locked or strange file raises in openpyxl and below it
    *(ElementTree.ParseError, zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError),
)
_CHAIN = "xl/calcChain.xml"
_CHAIN_ENTRY = re.compile(rb'<(?:\w+:)?(?:Override|Relationship)\s[^>]*calcChain\.xml"[^>]*/>')


class NotAWorkbook(ValueError):
    """A file that has no cells that can be read here: damaged, too large, of another kind, or openpyxl is not there."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """What came of putting cells back: how many were, and which were left because they have changed since."""

    done: int
    left: tuple[str, ...]


def cells_of(workbook: Path) -> Sheets:
    """Return every cell that holds something, by sheet.

    Raises:
        NotAWorkbook: it cannot be read.
    """
    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise NotAWorkbook("openpyxl is not installed") from error
    try:
        with zipfile.ZipFile(workbook) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _LARGEST_UNPACKED_BYTES:
                raise NotAWorkbook("it is too large")
        with workbook.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True)
            return {str(sheet.title): dict(_cells(sheet, book.epoch)) for sheet in book.worksheets}
    except (InvalidFileException, *_DAMAGED) as error:
        raise NotAWorkbook(str(error)) from error


def changes_between(before: Sheets, after: Sheets) -> Changes:
    """Return the cells that differ, with both values; a sheet that is only in one is all of its cells."""
    found: Changes = {}
    for title in dict.fromkeys([*before, *after]):
        old, new = before.get(title, {}), after.get(title, {})
        cells = {at: [old.get(at), new.get(at)] for at in dict.fromkeys([*old, *new]) if old.get(at) != new.get(at)}
        if cells:
            found[title] = cells
    return found


def put_cells_back(workbook: Path, changes: Changes, draft: Path) -> PutBack:
    """Write to `draft` the workbook with every changed cell put back that still holds what the change gave it.

    Raises:
        NotAWorkbook: it cannot be read, or it is built in a way that single cells cannot be changed safely.
    """
    now = cells_of(workbook)
    wanted: dict[str, dict[str, Value]] = {}
    left = []
    for title, cells in changes.items():
        for at, (before, after) in cells.items():
            held = now.get(title, {}).get(at)
            if held == before:
                continue
            if held != after or title not in now or (before is not None and before[0] == _OTHER):
                left.append(f"{title}!{at}")
            else:
                wanted.setdefault(title, {})[at] = before
    done = sum(len(cells) for cells in wanted.values())
    if done:
        try:
            _write(workbook, wanted, draft)
        except _DAMAGED as error:
            raise NotAWorkbook(str(error)) from error
        if cells_of(draft) != _with(now, wanted):
            raise NotAWorkbook("its sheets are built in a way that single cells cannot be changed safely")
    return PutBack(done, tuple(left))


def _cells(sheet: Any, epoch: datetime) -> Iterator[tuple[str, Value]]:  # noqa: ANN401 - openpyxl's read-only sheet
    sheet.reset_dimensions()  # what a file says of its size may be wrong, and is not needed
    number = width = 0
    for row in sheet.iter_rows():
        number += sum(cell.value is not None for cell in row)
        width += len(row)
        if number > _MOST_CELLS or width > _WIDEST:
            raise NotAWorkbook("it has too many cells")
        for cell in row:
            value = _value(cell.value, cell.data_type, epoch)
            if value is not None:
                yield cell.coordinate, value


def _value(value: Any, kind: str, epoch: datetime) -> Value:  # noqa: ANN401 - a cell's value of any type
    if isinstance(value, datetime | date | time | timedelta):
        from openpyxl.utils.datetime import to_excel

        value, kind = to_excel(value, epoch), "n"  # type: ignore[no-untyped-call]
    if value is None:
        return None
    if kind == "n":
        return ["n", f"{Decimal(repr(value)).normalize():f}"]
    if kind == "b":
        return ["b", "1" if value else "0"]
    if kind == "f" and not isinstance(value, str):
        return [_OTHER, str(getattr(value, "text", value))]
    return [kind if kind in ("f", "e") else "s", str(value)]


def _with(now: Sheets, wanted: Mapping[str, Mapping[str, Value]]) -> Sheets:
    together = {title: {**cells, **wanted.get(title, {})} for title, cells in now.items()}
    return {title: {at: value for at, value in cells.items() if value is not None} for title, cells in together.items()}


def _write(workbook: Path, wanted: Mapping[str, Mapping[str, Value]], draft: Path) -> None:
    """Copy a workbook with these cells changed. Kept results of formulas are dropped: they may be wrong now."""
    with zipfile.ZipFile(workbook) as archive, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as copy:
        members = _members(archive)
        titles = {member: title for title, member in members.items()}
        for entry in archive.infolist():
            content = archive.read(entry)
            if entry.filename == _CHAIN:
                continue
            if entry.filename in titles:
                content = _CACHED.sub(rb"\1", _with_cells(content, wanted.get(titles[entry.filename], {})))
            elif entry.filename in ("[Content_Types].xml", "xl/_rels/workbook.xml.rels"):
                content = _CHAIN_ENTRY.sub(b"", content)
            copy.writestr(entry, content)


def _members(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the archive's member of each sheet by its title."""
    targets = {}
    for relation in ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels")):  # noqa: S314 - expat bounds entities
        target = relation.get("Target", "")
        targets[relation.get("Id")] = target[1:] if target.startswith("/") else f"xl/{target}"
    found = {}
    for element in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter():  # noqa: S314 - expat bounds entities
        identity = next((value for name, value in element.attrib.items() if name.endswith("}id")), None)
        if element.tag.endswith("}sheet") and identity in targets:
            found[element.get("name", "")] = targets[identity]
    return found


def _with_cells(content: bytes, wanted: Mapping[str, Value]) -> bytes:
    """Return a sheet's XML with these cells changed, added where they are not there."""
    missing = dict(wanted)

    def changed(match: re.Match[bytes]) -> bytes:
        at = _REFERENCE.search(match[2])
        name = (at[1] + at[2]).decode("ascii") if at is not None else ""
        if name not in missing:
            return match[0]
        style = _STYLE.search(match[2])
        return _element(match[1], name, missing.pop(name), style[0] if style else b"")

    content = _CELL.sub(changed, content)
    added = {name: value for name, value in missing.items() if value is not None}
    return _DATA.sub(lambda data: _with_added(data, added), content, count=1) if added else content


def _element(prefix: bytes, name: str, value: Value, style: bytes) -> bytes:
    head = b" ".join(part for part in (b"<" + prefix + b"c", f'r="{name}"'.encode(), style) if part)
    if value is None:
        return head + b"/>"
    kind, text = value
    inside = escape(text[1:] if kind == "f" else text).encode()
    tag = {"s": b"is", "f": b"f"}.get(kind, b"v")
    if kind == "s":
        inside = b'<%st xml:space="preserve">%s</%st>' % (prefix, inside, prefix)
    form = {"s": b' t="inlineStr"', "b": b' t="b"', "e": b' t="e"'}.get(kind, b"")
    return b"%s%s><%s%s>%s</%s%s></%sc>" % (head, form, prefix, tag, inside, prefix, tag, prefix)


def _with_added(data: re.Match[bytes], added: Mapping[str, Value]) -> bytes:
    """Return the sheet's rows with more cells, each at its place."""
    prefix = data[1]
    rows = {}
    for row in _ROW.finditer(data[2] or b""):
        at = _REFERENCE.search(row[2])
        rows[int(at[2]) if at is not None else 0] = (b"<%srow%s>" % (prefix, row[2]), row[3] or b"")
    for name, value in added.items():
        letters, number = _split(name)
        head, cells = rows.get(number, (b'<%srow r="%d">' % (prefix, number), b""))
        place = len(cells)
        for cell in _CELL.finditer(cells):
            at = _REFERENCE.search(cell[2])
            if at is not None and _column(at[1].decode("ascii")) > _column(letters):
                place = cell.start()
                break
        rows[number] = (head, cells[:place] + _element(prefix, name, value, b"") + cells[place:])
    together = b"".join(b"%s%s</%srow>" % (head, cells, prefix) for _, (head, cells) in sorted(rows.items()))
    return b"<%ssheetData>%s</%ssheetData>" % (prefix, together, prefix)


def _split(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :])


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number
