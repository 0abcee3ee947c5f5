"""Values for the formulas of a workbook that openpyxl has written: it writes formulas without them.

Called by `sheets` only, on its own freshly written file, so the form of the XML is known.
"""

import re
import zipfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from starloom.errors import Bug

_FORMULA_CELL = re.compile(rb'(<c r="([A-Z]+[0-9]+)"[^>]*><f>[^<]*</f>)<v\s*(?:/>|></v>)')


def put_values(workbook: Path, sheet_number: int, values: Mapping[str, Decimal]) -> None:
    """Write the values of formulas into one sheet of a saved workbook, in place.

    Args:
        workbook: the file as openpyxl saved it.
        sheet_number: the sheet's position, from 1.
        values: the value of every formula of that sheet, by cell (`C4`).
    """
    member = f"xl/worksheets/sheet{sheet_number}.xml"
    with zipfile.ZipFile(workbook) as archive:
        parts = [(entry, archive.read(entry)) for entry in archive.infolist()]
    missing = set(values)

    def with_value(match: re.Match[bytes]) -> bytes:
        cell = match[2].decode("ascii")
        missing.discard(cell)
        return match[1] + b"<v>" + format(values[cell], "f").encode("ascii") + b"</v>"

    with zipfile.ZipFile(workbook, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in parts:
            archive.writestr(entry, _FORMULA_CELL.sub(with_value, content) if entry.filename == member else content)
    if missing:
        raise Bug(f"The formulas of {', '.join(sorted(missing))} were not found in the written workbook.")
