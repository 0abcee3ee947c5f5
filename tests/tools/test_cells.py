"""Single cells go back where nobody touched them since, and nothing else in the workbook changes."""

import zipfile
from datetime import date
from decimal import Decimal

import openpyxl
import pytest
from hypothesis import given, settings, strategies as st
from openpyxl.chart import BarChart, Reference

from starloom.tools.cells import NotAWorkbook, cells_of, changes_between, put_cells_back
from starloom.tools.sheet_values import put_values


def write(path, sheets):
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, cells in sheets.items():
        sheet = book.create_sheet(title)
        for at, value in cells.items():
            sheet[at] = value
    book.save(path)
    return path


def change(path, title, cells):
    book = openpyxl.load_workbook(path)
    for at, value in cells.items():
        book[title][at] = value
    book.save(path)


def values(path):
    return {
        sheet.title: {
            cell.coordinate: cell.value for row in sheet.iter_rows() for cell in row if cell.value is not None
        }
        for sheet in openpyxl.load_workbook(path).worksheets
    }


OLD = {"A1": "name", "B1": 1.5, "C2": "=B1*2", "D9": True, "E1": date(2026, 1, 2), "F1": "tail"}
NEW = {"A1": "NAME", "B1": 2, "C2": "=B1*3", "A3": "row 3 & <more>", "E1": date(2026, 1, 2), "Z3": "#N/A"}


def test_what_the_run_changed_goes_back_and_what_others_changed_stays(tmp_path):
    old, new = write(tmp_path / "old.xlsx", {"One": OLD}), write(tmp_path / "new.xlsx", {"One": NEW})
    changes = changes_between(cells_of(old), cells_of(new))
    change(new, "One", {"B1": 99, "G7": "someone's"})
    back = put_cells_back(new, changes, tmp_path / "back.xlsx")
    assert back.left == ("One!B1",)
    assert values(tmp_path / "back.xlsx") == {"One": {**values(old)["One"], "B1": 99, "G7": "someone's"}}


def test_twice_is_once(tmp_path):
    old, new = write(tmp_path / "old.xlsx", {"One": OLD}), write(tmp_path / "new.xlsx", {"One": NEW})
    changes = changes_between(cells_of(old), cells_of(new))
    assert put_cells_back(new, changes, tmp_path / "back.xlsx").done == 7
    assert put_cells_back(tmp_path / "back.xlsx", changes, tmp_path / "again.xlsx").done == 0
    assert not (tmp_path / "again.xlsx").exists()


def test_a_sheet_that_is_gone_is_named(tmp_path):
    old, new = (
        write(tmp_path / "old.xlsx", {"Gone": {"A1": 1}, "S": {}}),
        write(tmp_path / "new.xlsx", {"S": {"A1": 2}}),
    )
    back = put_cells_back(new, changes_between(cells_of(old), cells_of(new)), tmp_path / "back.xlsx")
    assert (back.done, back.left) == (1, ("Gone!A1",))


def test_charts_looks_and_every_other_part_stay_byte_for_byte(tmp_path):
    old, new = write(tmp_path / "old.xlsx", {"S": {"A1": 1, "A2": 2}}), tmp_path / "new.xlsx"
    write(new, {"S": {"A1": 5, "A2": 2}})
    changes = changes_between(cells_of(old), cells_of(new))
    book = openpyxl.load_workbook(new)
    chart = BarChart()
    chart.add_data(Reference(book["S"], min_col=1, min_row=1, max_row=2))
    book["S"].add_chart(chart, "C1")
    book["S"]["A1"].number_format = "0.000"
    book.save(new)
    put_cells_back(new, changes, tmp_path / "back.xlsx")
    with zipfile.ZipFile(new) as before, zipfile.ZipFile(tmp_path / "back.xlsx") as after:
        assert before.namelist() == after.namelist()
        differing = [name for name in before.namelist() if before.read(name) != after.read(name)]
    assert differing == ["xl/worksheets/sheet1.xml"]
    cell = openpyxl.load_workbook(tmp_path / "back.xlsx")["S"]["A1"]
    assert (cell.value, cell.number_format) == (1, "0.000")


def test_kept_results_of_formulas_are_dropped_because_they_may_be_wrong_now(tmp_path):
    old, new = (
        write(tmp_path / "old.xlsx", {"S": {"A1": 1}}),
        write(tmp_path / "new.xlsx", {"S": {"A1": 5, "B1": "=A1"}}),
    )
    put_values(new, 1, {"B1": Decimal(5)})
    assert openpyxl.load_workbook(new, data_only=True)["S"]["B1"].value == 5
    changes = {"S": {"A1": [["n", "1"], ["n", "5"]]}}
    assert put_cells_back(new, changes, tmp_path / "back.xlsx").done == 1
    assert openpyxl.load_workbook(tmp_path / "back.xlsx", data_only=True)["S"]["B1"].value is None
    assert cells_of(old)["S"]["A1"] == cells_of(tmp_path / "back.xlsx")["S"]["A1"]


def test_a_workbook_built_in_an_unknown_way_is_refused_instead_of_harmed(tmp_path):
    new = write(tmp_path / "new.xlsx", {"S": {"A1": 5, "B1": 6}})
    with zipfile.ZipFile(new) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(new, "w") as archive:
        for name, content in parts.items():  # cells need not say where they are
            archive.writestr(name, content.replace(b'r="A1" ', b"").replace(b'r="B1" ', b""))
    with pytest.raises(NotAWorkbook):
        put_cells_back(new, {"S": {"A1": [["n", "1"], ["n", "5"]]}}, tmp_path / "back.xlsx")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_workbook_is_said_to_be_none(tmp_path, content):
    (tmp_path / "x.xlsx").write_bytes(content)
    with pytest.raises(NotAWorkbook):
        cells_of(tmp_path / "x.xlsx")


places = st.sampled_from(["A1", "B1", "C1", "A2", "B2", "AA2", "A5", "C5"])
contents = st.one_of(
    st.none(), st.integers(-9, 9), st.sampled_from(["x", "<&>", " y ", "=A1", "=SUM(A1:B2)"]), st.booleans()
)
grids = st.dictionaries(places, contents, max_size=8)


@settings(max_examples=60, deadline=None)
@given(old=grids, new=grids, theirs=grids)
def test_a_cell_goes_back_exactly_when_it_still_holds_what_the_run_wrote(tmp_path_factory, old, new, theirs):
    folder = tmp_path_factory.mktemp("books")
    before = cells_of(write(folder / "old.xlsx", {"S": old}))
    now = write(folder / "new.xlsx", {"S": new})
    after = cells_of(now)
    changes = changes_between(before, after)
    change(now, "S", theirs)
    held = cells_of(now)["S"]
    back = put_cells_back(now, changes, folder / "back.xlsx")
    result = cells_of(folder / "back.xlsx" if back.done else now)["S"]
    for at in {*old, *new, *theirs}:
        was, wrote = before["S"].get(at), after["S"].get(at)
        expected = was if held.get(at) == wrote else held.get(at)
        assert result.get(at) == expected
