"""What tools change is on record before it is changed, and can be taken back as long as nobody else changed it."""

import pytest

from starloom.tools.builtin import builtin_toolsets
from starloom.tools.effects import effects_toolset
from starloom.tools.router import ToolCall, ToolRouter, ToolStatus
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
