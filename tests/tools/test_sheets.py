import subprocess
import sys

import openpyxl
import pytest

from starloom.tools.sheets import sheets_toolset
from starloom.tools.toolset import ToolFailure
from starloom.tools.workspace import Workspace

NORTH = {
    "title": "invoices/north",
    "columns": ["file", "supplier", "currency", "total"],
    "rows": [
        ["a.pdf", "=1+1", "EUR", "1000.10"],
        ["b.pdf", "B\x07 Ltd", "EUR", "0.20"],
        ["c.pdf", None, "GBP", "5.00"],
    ],
    "totals": {"EUR": "1000.30", "GBP": "5.00"},
    "unreadable": [{"file": "d.pdf", "reason": "=cmd()"}],
}
SOUTH = {
    **NORTH,
    "title": "other/north",
    "rows": [["x", "X", "EUR", "2.00"]],
    "totals": {"EUR": "2.00"},
    "unreadable": [],
}
PLAIN = {"title": "Totals", "columns": ["n", "yes"], "rows": [[1, True], [2.5, False]]}


@pytest.fixture
def call(tmp_path):
    tools = {item.name: item for item in sheets_toolset(Workspace(tmp_path)).tools}

    async def run(name, **arguments):
        return await tools[f"sheets.{name}"].function(arguments)

    return run


async def test_workbook_has_a_sheet_a_table_and_the_totals(call, tmp_path):
    made = await call("write", tables=[NORTH, SOUTH, PLAIN], path="totals.xlsx")
    assert made == {
        "path": "totals.xlsx",
        "sheets": ["north", "north 2", "Totals 2", "Totals"],
        "totals": {"EUR": "1002.30", "GBP": "5.00"},
        "unreadable": 1,
    }
    assert [item.name for item in tmp_path.iterdir()] == ["totals.xlsx"]


async def test_totals_are_formulas_with_the_right_values(call, tmp_path):
    await call("write", tables=[NORTH, SOUTH], path="totals.xlsx")
    formulas = openpyxl.load_workbook(tmp_path / "totals.xlsx")["Totals"]
    values = openpyxl.load_workbook(tmp_path / "totals.xlsx", data_only=True)["Totals"]
    assert formulas["C2"].value == "=SUMIF('north'!C$2:C$4,B2,'north'!D$2:D$4)"
    assert formulas["C5"].value == "=SUMIF(B$2:B$4,B5,C$2:C$4)"
    assert [[cell.value for cell in row] for row in values.iter_rows(min_row=2, max_row=6)] == [
        ["invoices/north", "EUR", 1000.3],
        ["invoices/north", "GBP", 5],
        ["other/north", "EUR", 2],
        ["All", "EUR", 1002.3],
        ["All", "GBP", 5],
    ]
    assert "Not read, not in the totals: invoices/north/d.pdf" in values["A7"].value


async def test_text_from_documents_never_becomes_a_formula(call, tmp_path):
    await call("write", tables=[NORTH], path="totals.xlsx")
    book = openpyxl.load_workbook(tmp_path / "totals.xlsx")
    assert book["north"]["B2"].value == "=1+1"
    assert book["north"]["B2"].data_type == "s"
    assert book["north"]["B3"].value == "B  Ltd"
    assert book["Totals"]["A6"].data_type == "s"


async def test_sheet_is_read_back_as_a_table_that_can_be_written_again(call):
    await call("write", tables=[NORTH], path="a.xlsx")
    table = await call("read", path="a.xlsx")
    assert table["rows"] == [
        ["a.pdf", "=1+1", "EUR", "1000.10"],
        ["b.pdf", "B  Ltd", "EUR", "0.20"],
        ["c.pdf", None, "GBP", "5.00"],
    ]
    assert table["columns"] == NORTH["columns"]
    assert table["sheets"] == ["north", "Totals"]
    assert (await call("write", tables=[table], path="b.xlsx"))["totals"] == NORTH["totals"]
    assert (await call("read", path="a.xlsx", sheet="Totals"))["rows"][0] == ["invoices/north", "EUR", "1000.30"]


async def test_wrong_totals_are_not_written(call, tmp_path):
    with pytest.raises(ToolFailure, match="stated as"):
        await call("write", tables=[{**NORTH, "totals": {"EUR": "1.00"}}], path="totals.xlsx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tables", "path", "words"),
    [
        ([{**PLAIN, "rows": [[1]]}], "a.xlsx", "1 cells for 2 columns"),
        ([PLAIN], "a.csv", r"ends in \.xlsx"),
        ([], "a.xlsx", "tables"),
    ],
)
async def test_what_cannot_be_written_is_refused(call, tables, path, words):
    with pytest.raises(ToolFailure, match=words):
        await call("write", tables=tables, path=path)


async def test_file_that_is_no_workbook_is_one_clear_failure(call, tmp_path):
    (tmp_path / "a.xlsx").write_text("no")
    with pytest.raises(ToolFailure, match="not a readable workbook"):
        await call("read", path="a.xlsx")
    await call("write", tables=[PLAIN], path="b.xlsx")
    with pytest.raises(ToolFailure, match="it has Totals 2, Totals"):
        await call("read", path="b.xlsx", sheet="nope")


async def test_long_and_odd_titles_become_sheet_names(call):
    titles = ["x" * 40, "X" * 40, "a/[b]:*?", "\x00", "history"]
    made = await call("write", tables=[{**PLAIN, "title": title} for title in titles], path="a.xlsx")
    assert made["sheets"][:5] == ["x" * 31, "X" * 29 + " 2", "-b----", "Table", "history 2"]


def test_missing_office_extra_names_the_command():
    code = """
import asyncio, sys, tempfile
sys.modules["openpyxl"] = sys.modules["pypdf"] = None
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.router import ToolCall, ToolRouter
from starloom.tools.workspace import Workspace
folder = tempfile.mkdtemp()
open(folder + "/a.pdf", "w").close()
router = ToolRouter(builtin_toolsets(Workspace(folder)))
table = {"title": "t", "columns": [], "rows": []}
for name, arguments in (
    ("sheets.write", {"tables": [table], "path": "a.xlsx"}),
    ("sheets.read", {"path": "a.xlsx"}),
    ("pdf.text", {"path": "a.pdf"}),
    ("invoices.read", {"folder": "."}),
):
    print(asyncio.run(router.call(ToolCall(name, arguments))).error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.count("pip install 'starloom[office]'") == 4, done.stdout
