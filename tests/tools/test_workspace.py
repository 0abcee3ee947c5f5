import os

import pytest

from starloom.safety.paths import PathRefused
from starloom.tools.toolset import ToolFailure
from starloom.tools.workspace import Workspace


def test_write_replaces_the_whole_file(tmp_path):
    workspace = Workspace(tmp_path)
    (tmp_path / "a.txt").write_text("old")
    with workspace.replacing("a.txt") as part:
        part.write_text("new")
        assert (tmp_path / "a.txt").read_text() == "old"
    assert (tmp_path / "a.txt").read_text() == "new"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_failed_write_leaves_nothing_behind(tmp_path):
    workspace = Workspace(tmp_path)
    (tmp_path / "a.txt").write_text("old")

    def write_half() -> None:
        with workspace.replacing("a.txt") as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_parents_are_made_and_modes_follow_the_umask(tmp_path):
    with Workspace(tmp_path).replacing("deep/er/a.txt") as part:
        part.write_text("x")
    mode = (tmp_path / "deep/er/a.txt").stat().st_mode & 0o777
    (tmp_path / "plain").write_text("x")
    assert mode == (tmp_path / "plain").stat().st_mode & 0o777


def test_mode_of_a_replaced_file_is_kept(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.txt").chmod(0o640)
    with Workspace(tmp_path).replacing("a.txt") as part:
        part.write_text("y")
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_place_without_permission_is_one_clear_failure(tmp_path):
    (tmp_path / "a").write_text("a file where a folder is wanted")
    with pytest.raises(ToolFailure, match=r"Cannot write 'a/b\.txt'"), Workspace(tmp_path).replacing("a/b.txt"):
        pass


def test_writing_through_a_link_that_leaves_is_refused(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "file").symlink_to(outside / "new.txt")
    workspace = Workspace(inside)
    for path in ("link/x.txt", "file"):
        with pytest.raises(PathRefused), workspace.replacing(path):
            pass
    assert list(outside.iterdir()) == []


def test_link_that_stays_inside_is_followed(tmp_path):
    (tmp_path / "real.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    assert Workspace(tmp_path).file("link.txt") == tmp_path / "real.txt"


def test_what_is_not_an_ordinary_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    workspace = Workspace(tmp_path)
    for path in ("pipe", ".", "missing"):
        with pytest.raises(ToolFailure):
            workspace.file(path)
    (tmp_path / "big").write_text("12345")
    with pytest.raises(ToolFailure, match="limit of 4"):
        workspace.file("big", limit_bytes=4)
    with pytest.raises(ToolFailure, match="not a folder"):
        workspace.folder("big")
    with pytest.raises(ToolFailure, match="does not exist"):
        workspace.folder("missing")
    with pytest.raises(ToolFailure, match="is a folder"), workspace.replacing("."):
        pass
