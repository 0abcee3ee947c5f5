import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from starloom.safety.paths import PathRefused, confine, folder_name, is_confined

ESCAPES = [
    "../x",
    "a/../../x",
    "a/..",
    "..",
    "/etc/passwd",
    "~/x",
    "~root/x",
    "C:\\Windows",
    "C:x",
    "\\\\server\\share",
    "..\\x",
    "a\x00b",
    "a\nb",
    "file:///etc/passwd",
    "http://169.254.169.254/",
    "mailto:eve@evil.example",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_path_that_leaves_is_refused(tmp_path, path):
    assert not is_confined(path)
    with pytest.raises(PathRefused):
        confine(tmp_path, path)


@pytest.mark.parametrize(
    "path", ["", ".", "a", "a/b.txt", "./a", "a..b", "...", "%2e%2e/x", "Rechnung Mai.pdf", "日本", "Re: offer.txt"]
)
def test_path_that_stays_is_taken(tmp_path, path):
    assert is_confined(path)
    assert confine(tmp_path, path).is_relative_to(tmp_path.resolve())


def test_absolute_path_is_taken_only_below_the_root(tmp_path):
    assert confine(tmp_path, str(tmp_path / "a")) == tmp_path / "a"
    for path in (str(tmp_path) + "-sibling/a", str(tmp_path / ".." / "x")):
        with pytest.raises(PathRefused):
            confine(tmp_path, path)


def test_links_out_and_loops_are_refused(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(PathRefused):
        confine(root, "out/x")
    with pytest.raises(PathRefused):
        confine(root, "out")
    # A loop either cannot be followed or resolves inside; it never leads out.
    with contextlib.suppress(PathRefused):
        assert confine(root, "loop").is_relative_to(root)


@pytest.mark.properties
@given(st.text(max_size=40))
def test_no_text_leads_out(text):
    root = Path("/nonexistent/root")
    try:
        real = confine(root, text)
    except (PathRefused, ValueError):
        return
    assert os.path.commonpath([root, real]) == str(root)


@pytest.mark.properties
@given(st.text(max_size=200), st.sets(st.sampled_from(["task", "a", "b"])))
def test_folder_name_is_one_safe_free_name(text, taken):
    name = folder_name(text, taken)
    assert name
    assert name.lower() not in taken
    assert not set(name) & set('/\\:*?"<>|\x00\n')
    assert not name.startswith(".")
    assert not name.endswith((".", " "))
    assert len(name.encode()) <= 100
    assert (Path("/root") / name).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../escape", "escape"),
        ("C:\\x", "C_x"),
        ("..", "task"),
        ("", "task"),
        ("con", "task_con"),
        ("NUL.txt", "task_NUL.txt"),
        ("Отчёт май", "Отчёт май"),
        ("/etc/passwd", "etc_passwd"),
    ],
)
def test_folder_name_of_attacks(text, name):
    assert folder_name(text) == name


def test_taken_folder_name_gets_a_number():
    assert folder_name("Run", {"run", "run-2"}) == "Run-3"
