"""The `sheets` toolset, and the one place that knows openpyxl: workbooks from tables, tables from workbooks.

A written workbook holds real formulas *and* their right values: openpyxl writes no values, so they are put into the
finished file; a viewer that does not calculate still shows the totals. Needs the `office` extra.
"""

import zipfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from starloom.safety.policy import Risk
from starloom.tools.files import FilePath
from starloom.tools.pdf import missing_office
from starloom.tools.sheet_values import put_values
from starloom.tools.tables import (
    Cell,
    Table,
    TableReference,
    add_totals,
    as_decimal,
    check_shape,
    money,
    money_columns,
    totals_of,
    unreadable_of,
)
from starloom.tools.toolset import ToolFailure, Toolset, tool
from starloom.tools.workspace import Workspace

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

_LARGEST_BYTES = 50 * 1024 * 1024
_LARGEST_UNPACKED_BYTES = 300 * 1024 * 1024
_MOST_ROWS = 20_000
_LONGEST_SHEET_NAME = 31
_NOT_IN_SHEET_NAMES = str.maketrans(dict.fromkeys("[]:*?/\\'", "-"))
_MONEY_FORMAT = "#,##0.00"
TOTALS_SHEET = "Totals"
_RESERVED_NAMES = frozenset({"history", TOTALS_SHEET.lower()})  # Excel refuses the first, the second is ours


class Workbooked(TypedDict):
    """A written workbook: its sheets, the exact totals by currency, and the number of documents left out."""

    path: str
    sheets: list[str]
    totals: dict[str, str]
    unreadable: int


class SheetTable(Table):
    """One sheet as a table, with the names of all sheets of its workbook."""

    sheets: list[str]


def sheets_toolset(workspace: Workspace) -> Toolset:
    """Return the `sheets` toolset over a workspace."""

    def write(
        tables: Annotated[list[TableReference], Field(min_length=1, description="Tables from earlier steps.")],
        path: Annotated[str, Field(min_length=1, description="The workbook to make, like totals.xlsx")],
    ) -> Workbooked:
        """Write tables into an Excel workbook, one sheet each and a sheet with the totals."""
        return _write(workspace, tables, path)

    def read(
        path: FilePath, sheet: Annotated[str, Field(description="The sheet's name; empty: the first")] = ""
    ) -> SheetTable:
        """Read one sheet of an Excel workbook as a table; its first row names the columns."""
        return _read(workspace, path, sheet)

    return Toolset(
        "sheets",
        (
            tool(write, name="sheets.write", risk=Risk.WRITE, destinations=("path",)),
            tool(read, name="sheets.read", risk=Risk.READ, destinations=("path",)),
        ),
    )


def _write(workspace: Workspace, tables: list[Table], path: str) -> Workbooked:
    try:
        import openpyxl
    except ImportError as error:
        raise missing_office("Writing a workbook") from error
    if Path(path).suffix.lower() != ".xlsx":
        raise ToolFailure(f"A workbook's name ends in .xlsx; {path!r} does not.", path=path)
    totals = [totals_of(table) for table in tables]
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    names = [_add_table(book, table) for table in tables]
    values = _add_totals(book, tables, names, totals)
    with workspace.replacing(path) as part:
        book.save(part)
        put_values(part, len(book.sheetnames), values)
    return Workbooked(
        path=workspace.relative(workspace.resolve(path)),
        sheets=list(book.sheetnames),
        totals={currency: money(amount) for currency, amount in add_totals(totals).items()},
        unreadable=len(unreadable_of(tables)),
    )


def _add_table(book: "Workbook", table: Table) -> str:
    """Add a table as a sheet and return the sheet's name."""
    check_shape(table)
    sheet = book.create_sheet(_sheet_name(table["title"], book.sheetnames))
    places = money_columns(table)
    for column, name in enumerate(table["columns"], start=1):
        _put(sheet, 1, column, name, bold=True)
    for row_number, row in enumerate(table["rows"], start=2):
        for column, cell in enumerate(row, start=1):
            is_money = places is not None and column == places[0] + 1
            _put(sheet, row_number, column, as_decimal(cell) if is_money else cell)
    sheet.freeze_panes = "A2"
    _fit_columns(sheet)
    return str(sheet.title)


def _add_totals(
    book: "Workbook", tables: list[Table], names: list[str], totals: list[dict[str, Decimal]]
) -> dict[str, Decimal]:
    """Add the Totals sheet: a line a table and currency, then one a currency; return its formulas' values by cell."""
    sheet = book.create_sheet(TOTALS_SHEET)
    values: dict[str, Decimal] = {}
    for column, title in enumerate(("table", "currency", "total"), start=1):
        _put(sheet, 1, column, title, bold=True)
    row = 1
    for table, name, sums in zip(tables, names, totals, strict=True):
        for currency, amount in sorted(sums.items()):
            row += 1
            _put(sheet, row, 1, table["title"])
            _put(sheet, row, 2, currency)
            formula = _sum_formula(table, name, row)
            _put(sheet, row, 3, amount if formula is None else formula, formula=formula is not None)
            if formula is not None:
                values[f"C{row}"] = amount
    last = row
    for currency, amount in add_totals(totals).items():
        row += 1
        _put(sheet, row, 1, "All", bold=True)
        _put(sheet, row, 2, currency, bold=True)
        _put(sheet, row, 3, f"=SUMIF(B$2:B${last},B{row},C$2:C${last})", formula=True, bold=True)
        values[f"C{row}"] = amount
    for item in unreadable_of(tables):
        row += 1
        _put(sheet, row, 1, f"Not read, not in the totals: {item['file']}: {item['reason']}")
    _fit_columns(sheet, rows=last)
    return values


def _sum_formula(table: Table, name: str, row: int) -> str | None:
    """Return the formula that sums the table's amounts of the currency named in column B of this row."""
    from openpyxl.utils import get_column_letter

    places = money_columns(table)
    if places is None or not table["rows"]:
        return None
    amount, currency = (get_column_letter(place + 1) for place in places)
    last = len(table["rows"]) + 1
    return f"=SUMIF('{name}'!{currency}$2:{currency}${last},B{row},'{name}'!{amount}$2:{amount}${last})"


def _put(
    sheet: "Worksheet", row: int, column: int, value: Cell | Decimal, *, formula: bool = False, bold: bool = False
) -> None:
    """Set one cell. Text that begins with an equals sign stays text: documents must not bring formulas."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
    from openpyxl.styles import Font

    cell = sheet.cell(row, column)
    if isinstance(value, str):
        cell.value = ILLEGAL_CHARACTERS_RE.sub(" ", value)[:32_000]
        cell.data_type = "f" if formula else "s"
    else:
        cell.value = value
    if formula or isinstance(value, Decimal):
        cell.number_format = _MONEY_FORMAT
    if bold:
        cell.font = Font(bold=True)


def _fit_columns(sheet: "Worksheet", rows: int | None = None) -> None:
    from openpyxl.utils import get_column_letter

    for column in range(1, sheet.max_column + 1):
        cells = (sheet.cell(row, column).value for row in range(1, (rows or sheet.max_row) + 1))
        longest = max(
            (len(str(value)) for value in cells if value is not None and not str(value).startswith("=")), default=0
        )
        sheet.column_dimensions[get_column_letter(column)].width = min(max(longest + 2, 12), 60)


def _sheet_name(title: str, taken: list[str]) -> str:
    """Return a free name for a sheet: the last part of a folder's path, without the signs that Excel refuses."""
    last = title.rstrip("/").rpartition("/")[2] or title
    printable = "".join(sign for sign in last.translate(_NOT_IN_SHEET_NAMES) if sign.isprintable()).strip()
    base = printable[:_LONGEST_SHEET_NAME] or "Table"
    used = {name.lower() for name in taken} | _RESERVED_NAMES
    name, number = base, 1
    while name.lower() in used:
        number += 1
        suffix = f" {number}"
        name = base[: _LONGEST_SHEET_NAME - len(suffix)] + suffix
    return name


def _read(workspace: Workspace, path: str, name: str) -> SheetTable:
    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise missing_office("Reading a workbook") from error
    real = workspace.file(path, limit_bytes=_LARGEST_BYTES)
    try:
        check_unpacked_size(real, path)
        book = openpyxl.load_workbook(real, read_only=True, data_only=True)
    except (InvalidFileException, zipfile.BadZipFile, ValueError, KeyError, OSError) as error:
        raise ToolFailure(f"{path!r} is not a readable workbook: {error}", path=path) from error
    try:
        names = list(book.sheetnames)
        if name and name not in names:
            raise ToolFailure(f"{path!r} has no sheet {name!r}; it has {', '.join(names)}.", path=path)
        rows = [[_cell(cell) for cell in row] for row in _limited_rows(book[name or names[0]], path)]
    finally:
        book.close()
    columns = ["" if cell is None else str(cell) for cell in rows[0]] if rows else []
    return SheetTable(title=name or names[0], columns=columns, rows=rows[1:], sheets=names)


def check_unpacked_size(real: Path, name: str) -> None:
    """Refuse a workbook that is small on disk and huge when unpacked.

    Raises:
        ToolFailure: it would unpack to more than the limit.
    """
    with zipfile.ZipFile(real) as archive:
        size_bytes = sum(entry.file_size for entry in archive.infolist())
    if size_bytes > _LARGEST_UNPACKED_BYTES:
        raise ToolFailure(f"{name!r} unpacks to {size_bytes} bytes, more than {_LARGEST_UNPACKED_BYTES}.", path=name)


def _limited_rows(sheet: Any, path: str) -> list[tuple[Any, ...]]:  # noqa: ANN401 - openpyxl's read-only sheet
    if (sheet.max_row or 0) > _MOST_ROWS:
        raise ToolFailure(f"{path!r} has {sheet.max_row} rows, more than {_MOST_ROWS}.", path=path)
    return list(sheet.iter_rows())


def _cell(cell: Any) -> Cell:  # noqa: ANN401 - openpyxl's cell of any type
    """Return a cell's value: money and other fractions as decimal strings, dates in ISO form."""
    value = cell.value
    if value is None or isinstance(value, bool | int | str):
        if isinstance(value, int) and not isinstance(value, bool) and "0.00" in str(cell.number_format):
            return money(Decimal(value))
        return value
    if isinstance(value, float):
        exact = Decimal(repr(value))
        return money(exact) if "0.00" in str(cell.number_format) else f"{exact:f}"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
