import zipfile

import pytest

from starloom.safety.paths import PathRefused
from starloom.safety.policy import Risk
from starloom.tools.files import files_toolset
from starloom.tools.toolset import ToolFailure
from starloom.tools.workspace import Workspace


@pytest.fixture
def call(tmp_path):
    tools = {item.name: item for item in files_toolset(Workspace(tmp_path)).tools}

    async def run(name, **arguments):
        return await tools[f"files.{name}"].function(arguments)

    return run


async def test_written_text_is_read_back(call, tmp_path):
    assert await call("write", path="notes/a.txt", text="Grüße\n") == {"path": "notes/a.txt", "size_bytes": 8}
    assert await call("read", path="notes/a.txt") == {
        "path": "notes/a.txt",
        "text": "Grüße\n",
        "size_bytes": 8,
        "truncated": False,
    }
    await call("write", path="notes/a.txt", text="new")
    assert (tmp_path / "notes/a.txt").read_text() == "new"


async def test_long_text_is_cut_at_a_line(call, tmp_path):
    (tmp_path / "long.txt").write_text("ä" * 99 + "\n" + ("é" * 1000 + "\n") * 400, encoding="utf-8")
    read = await call("read", path="long.txt")
    assert read["truncated"]
    assert read["text"].endswith("é\n")
    (tmp_path / "line.txt").write_text("é" * 400_001, encoding="utf-8")
    assert set((await call("read", path="line.txt"))["text"]) == {"é"}


async def test_list_shows_entries_by_name(call, tmp_path):
    (tmp_path / "b.txt").write_text("12")
    (tmp_path / "a").mkdir()
    (tmp_path / ".starloom-part").write_text("")
    listing = await call("list")
    assert listing["entries"] == [
        {"name": "a", "path": "a", "kind": "folder", "size_bytes": 0},
        {"name": "b.txt", "path": "b.txt", "kind": "file", "size_bytes": 2},
    ]
    assert [entry["name"] for entry in (await call("list", pattern="*.txt"))["entries"]] == ["b.txt"]


async def test_copy_and_move_never_overwrite(call, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "folder").mkdir()
    assert (await call("copy", source="a.txt", path="folder"))["path"] == "folder/a.txt"
    assert (await call("move", source="a.txt", path="new/b.txt"))["path"] == "new/b.txt"
    assert not (tmp_path / "a.txt").exists()
    for name in ("copy", "move"):
        with pytest.raises(ToolFailure, match="exists already"):
            await call(name, source="folder/a.txt", path="new/b.txt")


async def test_delete_takes_one_file_only(call, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    assert await call("delete", path="a.txt") == {"path": "a.txt"}
    assert not (tmp_path / "a.txt").exists()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ToolFailure, match="not a file"):
        await call("delete", path="folder")


async def test_zip_takes_files_folders_and_patterns_once(call, tmp_path):
    for name in ("totals.xlsx", "in/a.pdf", "in/deep/b.pdf", "in/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    made = await call("zip", files=["totals.xlsx", "in", "in/*.pdf"], path="out/all.zip")
    assert made["files"] == ["totals.xlsx", "in/a.pdf", "in/c.txt", "in/deep/b.pdf"]
    with zipfile.ZipFile(tmp_path / "out/all.zip") as archive:
        assert archive.namelist() == made["files"]
        assert archive.read("in/deep/b.pdf") == b"in/deep/b.pdf"


async def test_archive_never_contains_itself(call, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "all.zip").write_text("old")
    assert (await call("zip", files=["."], path="all.zip"))["files"] == ["a.txt"]
    with pytest.raises(ToolFailure, match="contain itself"):
        await call("zip", files=["a.txt", "all.zip"], path="all.zip")


@pytest.mark.parametrize("files", [["missing.txt"], ["*.pdf"], ["empty"]])
async def test_zip_of_nothing_is_a_failure_and_writes_nothing(call, tmp_path, files):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ToolFailure):
        await call("zip", files=files, path="all.zip")
    assert not (tmp_path / "all.zip").exists()


async def test_zip_leaves_links_to_the_outside_out(call, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a")
    (tmp_path / "in/link").symlink_to("/etc/hostname")
    (tmp_path / "in/folder").symlink_to("/etc")
    assert (await call("zip", files=["in"], path="all.zip"))["files"] == ["in/a.txt"]
    with pytest.raises(PathRefused):
        await call("zip", files=["in/link"], path="all.zip")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", {"folder": "../"}),
        ("read", {"path": "/etc/passwd"}),
        ("write", {"path": "../x", "text": ""}),
        ("copy", {"source": "/etc/hostname", "path": "x"}),
        ("copy", {"source": "a", "path": "../x"}),
        ("move", {"source": "a", "path": "/tmp/x"}),
        ("delete", {"path": "~/x"}),
        ("zip", {"files": ["../*"], "path": "x.zip"}),
        ("zip", {"files": ["a"], "path": "../x.zip"}),
    ],
)
async def test_no_tool_leaves_the_workspace(call, tmp_path, name, arguments):
    (tmp_path / "a").write_text("a")
    with pytest.raises(PathRefused):
        await call(name, **arguments)


def test_every_tool_says_its_risk_and_where_it_acts(tmp_path):
    tools = {item.name: item for item in files_toolset(Workspace(tmp_path)).tools}
    assert {name for name, item in tools.items() if item.risk is Risk.READ} == {"files.list", "files.read"}
    assert tools["files.delete"].risk is Risk.IRREVERSIBLE
    assert all(item.destinations for item in tools.values())
