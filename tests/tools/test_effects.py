"""What tools change is on record before it is changed, and can be taken back as long as nobody else changed it."""

import sys

import openpyxl
import pytest

from starloom.tools.builtin import builtin_toolsets
from starloom.tools.comparing import MOST_ENTRIES
from starloom.tools.router import ToolCall, ToolRouter, ToolStatus
from starloom.tools.taking_back import effects_toolset
from starloom.tools.workspace import Workspace


class Device:
    """A router over one folder, as a device composes it."""

    def __init__(self, folder):
        self.folder = folder
        self._calls = 0
        self.router = ToolRouter(builtin_toolsets(Workspace(folder)), unlisted=(effects_toolset(folder),))

    async def call(self, name, run="run_1", **arguments):
        self._calls += 1
        outcome = await self.router.call(ToolCall(name, arguments, f"{run}:task{self._calls}:1" if run else ""))
        assert outcome.status is ToolStatus.SUCCESS, outcome.error
        return outcome.result

    async def undo(self, run="run_1"):
        outcome = await self.router.call(ToolCall("effects.undo", {"run": run}))
        assert outcome.status is ToolStatus.SUCCESS, outcome.error
        return [(row["kind"], row["path"], row["undone"]) for row in outcome.result["effects"]]

    async def rows(self, tool="effects.undo", run="run_1"):
        outcome = await self.router.call(ToolCall(tool, {"run": run}))
        assert outcome.status is ToolStatus.SUCCESS, outcome.error
        return outcome.result["effects"]

    def files(self):
        return {
            path.relative_to(self.folder).as_posix(): path.read_text()
            for path in self.folder.rglob("*")
            if path.is_file() and ".starloom" not in path.parts
        }


@pytest.fixture
def device(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "doomed.txt").write_text("doomed")
    (tmp_path / "here.txt").write_text("here")
    return Device(tmp_path)


async def test_everything_a_run_did_to_files_is_taken_back(device):
    before = device.files()
    await device.call("files.write", path="old.txt", text="new")
    await device.call("files.write", path="old.txt", text="newer")
    await device.call("files.write", path="made/new.txt", text="made")
    await device.call("files.delete", path="doomed.txt")
    await device.call("files.move", source="here.txt", path="there.txt")
    await device.call("files.copy", source="there.txt", path="copy.txt")
    assert device.files() != before
    assert all(undone for _, _, undone in await device.undo())
    assert device.files() == before
    assert not (device.folder / "made").exists(), "a folder that was made on the way goes too"
    assert not any(undone for _, _, undone in await device.undo()), "twice is once"
    assert device.files() == before


async def test_what_changed_since_stays(device):
    await device.call("files.write", path="old.txt", text="new")
    await device.call("files.write", path="made.txt", text="made")
    await device.call("files.delete", path="doomed.txt")
    for name in ("old.txt", "made.txt", "doomed.txt"):
        (device.folder / name).write_text("someone else's")
    after = device.files()
    assert [undone for _, _, undone in await device.undo()] == [False, False, False]
    assert device.files() == after


async def test_another_run_is_left_alone_and_calls_without_an_id_are_not_on_record(device):
    await device.call("files.write", path="a.txt", text="1", run="run_1")
    await device.call("files.write", path="b.txt", text="1", run="run_10")
    await device.call("files.write", path="c.txt", text="1", run="")
    assert [path for _, path, _ in await device.undo("run_1")] == ["a.txt"]
    assert {"b.txt", "c.txt"} <= set(device.files())


async def test_a_change_that_was_noted_and_never_made_is_no_trouble(device):
    await device.call("files.write", path="old.txt", text="new")
    (device.folder / "old.txt").write_text("old")  # as if the device had died between the note and the change
    record = next(device.folder.glob(".starloom/effects/*/record.jsonl"))
    record.write_text(record.read_text() + '{"call_id": "run_1:x')
    assert await device.undo() == [("overwritten", "old.txt", False)]
    assert device.files()["old.txt"] == "old"


async def test_tools_neither_see_nor_touch_the_record(device):
    await device.call("files.write", path="old.txt", text="new")
    listed = await device.call("files.list")
    assert [entry["name"] for entry in listed["entries"]] == ["doomed.txt", "here.txt", "old.txt"]
    packed = await device.call("files.zip", files=["."], path="all.zip")
    assert packed["files"] == ["doomed.txt", "here.txt", "old.txt"]
    for name in (".starloom", ".starloom/effects/x"):
        outcome = await device.router.call(ToolCall("files.delete", {"path": name}))
        assert (outcome.status, "own record" in (outcome.error or "")) == (ToolStatus.FAILURE, True)


def test_the_two_tools_are_not_on_offer(device):
    assert not [item.name for item in device.router.infos() if item.namespace == "effects"]


async def test_a_listing_tells_the_changes_oldest_first(device):
    await device.call("files.write", path="a.txt", text="1")
    await device.call("files.move", source="a.txt", path="b.txt")
    outcome = await device.router.call(ToolCall("effects.list", {"run": "run_1"}))
    rows = outcome.result["effects"]
    assert [(row["kind"], row["source"], row["path"]) for row in rows] == [
        ("created", "", "a.txt"),
        ("moved", "a.txt", "b.txt"),
    ]
    assert rows[0]["call_id"] == "run_1:task1:1"


async def test_folders_made_on_the_way_go_when_they_are_empty(device):
    await device.call("files.write", path="a/b/c/new.txt", text="made")
    await device.call("files.move", source="here.txt", path="d/e/here.txt")
    (device.folder / "a" / "mine.txt").write_text("someone's")
    rows = {row["path"]: (row["undone"], row["note"]) for row in await device.rows()}
    assert rows["a"] == (False, "it is not empty; it stays")
    assert all(rows[path][0] for path in ("a/b", "a/b/c", "a/b/c/new.txt", "d", "d/e", "d/e/here.txt"))
    assert sorted(item.name for item in device.folder.iterdir()) == [
        ".starloom",
        "a",
        "doomed.txt",
        "here.txt",
        "old.txt",
    ]


def table(title, *amounts):
    return {
        "title": title,
        "columns": ["file", "currency", "total"],
        "rows": [[f"{number}.pdf", "EUR", amount] for number, amount in enumerate(amounts)],
    }


async def write_sheets(device, *tables):
    await device.call("sheets.write", tables=list(tables), path="out/totals.xlsx")


def cells(device, title):
    sheet = openpyxl.load_workbook(device.folder / "out/totals.xlsx")[title]
    return {cell.coordinate: cell.value for row in sheet.iter_rows() for cell in row if cell.value is not None}


async def test_only_the_cells_of_the_run_go_back_when_someone_has_worked_in_the_workbook_since(device):
    await device.call("sheets.write", run="run_0", tables=[table("North", "1.00", "2.00")], path="out/totals.xlsx")
    before = cells(device, "North")
    await write_sheets(device, table("North", "10.00", "20.00", "30.00"))
    book = openpyxl.load_workbook(device.folder / "out/totals.xlsx")
    book["North"]["C2"], book["North"]["H1"] = 77, "a note of mine"
    book.save(device.folder / "out/totals.xlsx")
    [row] = await device.rows()
    assert row["undone"]
    assert row["note"].endswith("; left, because changed since: North!C2")
    assert cells(device, "North") == {**before, "C2": 77, "H1": "a note of mine"}
    assert [again["undone"] for again in await device.rows()] == [False]


async def test_a_workbook_that_nobody_touched_since_goes_back_as_a_whole(device):
    await device.call("sheets.write", run="run_0", tables=[table("North", "1.00")], path="out/totals.xlsx")
    before = (device.folder / "out/totals.xlsx").read_bytes()
    await write_sheets(device, table("North", "9.00"))
    assert [(row["undone"], row["note"]) for row in await device.rows()] == [(True, "put back")]
    assert (device.folder / "out/totals.xlsx").read_bytes() == before


async def test_a_workbook_that_the_run_made_keeps_what_others_put_in(device):
    await write_sheets(device, table("North", "9.00"))
    book = openpyxl.load_workbook(device.folder / "out/totals.xlsx")
    book["North"]["H1"] = "mine"
    book.save(device.folder / "out/totals.xlsx")
    folder, made = await device.rows()
    assert (folder["kind"], folder["undone"], made["undone"]) == ("folder", False, True)
    assert (cells(device, "North"), cells(device, "Totals")) == ({"H1": "mine"}, {})


SCRIPT = (
    "import os; open('new.txt','w').write('n'); open('old.txt','w').write('x'); os.remove('doomed.txt'); os.mkdir('d')"
)


async def test_what_a_program_did_is_told_and_what_appeared_is_moved_away(device):
    await device.call("shell.run", command=[sys.executable, "-c", SCRIPT])
    listed = {(row["kind"], row["path"]): row for row in await device.rows("effects.list")}
    told = {("ran", "."), ("folder", "d"), ("appeared", "new.txt"), ("changed", "old.txt"), ("vanished", "doomed.txt")}
    assert set(listed) == told
    assert {key for key, row in listed.items() if not row["reversible"]} == {
        ("ran", "."),
        ("changed", "old.txt"),
        ("vanished", "doomed.txt"),
    }
    assert all(row["note"].startswith("cannot be reversed") for row in listed.values() if not row["reversible"])
    undone = {(row["kind"], row["path"]) for row in await device.rows() if row["undone"]}
    assert undone == {("folder", "d"), ("appeared", "new.txt")}
    assert not (device.folder / "new.txt").exists()
    [aside] = device.folder.glob(".starloom/effects/*/*-new.txt")
    assert aside.read_text() == "n"


async def test_a_link_that_a_program_made_goes_and_what_it_names_stays(device):
    await device.call("shell.run", command=["ln", "-s", "old.txt", "link"])
    assert [row["kind"] for row in await device.rows() if row["undone"]] == ["appeared"]
    assert device.files()["old.txt"] == "old"
    assert not (device.folder / "link").is_symlink()


async def test_what_a_killed_program_did_is_told_too(device):
    script = "import time; open('new.txt','w').write('n'); time.sleep(60)"
    call = ToolCall("shell.run", {"command": [sys.executable, "-c", script], "timeout_s": 2}, "run_1:t:1")
    assert (await device.router.call(call)).status is ToolStatus.FAILURE
    assert [row["kind"] for row in await device.rows("effects.list")] == ["ran", "appeared"]


async def test_a_folder_that_is_too_large_to_compare_says_so(device):
    for number in range(MOST_ENTRIES):
        (device.folder / f"f{number}").touch()
    await device.call("shell.run", command=["true"])
    notes = [row["note"] for row in await device.rows("effects.list")]
    assert [note.startswith("cannot be reversed") for note in notes] == [True, True]
    assert "10,000" in notes[1]


async def test_a_file_that_has_become_a_link_stays(device):
    await device.call("files.write", path="made.txt", text="made")
    (device.folder / "made.txt").unlink()
    (device.folder / "made.txt").symlink_to("old.txt")
    assert [undone for _, _, undone in await device.undo()] == [False]
    assert (device.folder / "made.txt").is_symlink()
