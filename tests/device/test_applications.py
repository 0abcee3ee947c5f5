"""What counts as an installed application: visible, and its program is there."""

from pathlib import Path

import pytest

from starloom.device.applications import MOST, NAME_LIMIT, installed_applications


@pytest.fixture
def machine(tmp_path):
    """A home, a shared folder and a path with one program, `painter`."""
    program = tmp_path / "bin" / "painter"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    class Machine:
        def __init__(self):
            folders = f"{tmp_path / 'shared'}:{tmp_path / 'nowhere'}"
            self.home = tmp_path / "home"
            self.environment = {"XDG_DATA_DIRS": folders, "PATH": str(program.parent)}

        def entry(self, file, text, folder="shared"):
            path = (self.home / ".local/share" if folder == "home" else tmp_path / folder) / "applications" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())

        def found(self):
            return installed_applications("linux", self.environment, self.home)

    return Machine()


def desktop(name="Painter", program="painter --new %U", more=""):
    return f"[Desktop Entry]\nType=Application\nName={name}\nName[de]=Maler\nExec={program}\n{more}\n"


def test_visible_entries_whose_program_is_there_are_found(machine):
    machine.entry("z.desktop", desktop("painter of signs"))
    machine.entry("a.desktop", desktop("Painter"))
    machine.entry("gone.desktop", desktop("Gone", "gone-program"))
    machine.entry("tried.desktop", desktop("Tried", more="TryExec=gone-program"))
    machine.entry("no.desktop", desktop("Helper", more="NoDisplay=true"))
    machine.entry("link.desktop", desktop("Link").replace("Application", "Link"))
    assert machine.found() == ("Painter", "painter of signs")


def test_the_users_own_entry_goes_before_the_shared_one(machine):
    machine.entry("painter.desktop", desktop("Painter"))
    machine.entry("painter.desktop", desktop("My painter", more="Hidden=true"), folder="home")
    assert machine.found() == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Name=Painter",
        "[Desktop Entry]\n",
        "[Desktop Entry]\nName=A\nExec='unclosed",
        b"\xff\xfe\x00",
        "[Desktop Entry]\nName=\x1b[2J\nExec=painter",
        desktop() + "#" * 300_000,
        "[Desktop Entry]\nExec=painter",
    ],
)
def test_odd_files_are_left_out(machine, text):
    machine.entry("odd.desktop", text)
    machine.entry("good.desktop", desktop("Good"))
    assert machine.found() == ("Good",)


def test_names_and_their_number_are_bounded(machine):
    for number in range(MOST + 5):
        machine.entry(f"{number}.desktop", desktop(f"{number:04} {'x' * 200}"))
    found = machine.found()
    assert len(found) == MOST
    assert {len(name) for name in found} == {NAME_LIMIT}


def test_bundles_and_short_cuts_are_applications_elsewhere(tmp_path):
    (tmp_path / "Applications" / "Tools" / "Deep.app").mkdir(parents=True)
    (tmp_path / "Applications" / "Painter.app").mkdir()
    assert {"Deep", "Painter"} <= set(installed_applications("darwin", {}, tmp_path))
    menu = tmp_path / "Microsoft/Windows/Start Menu/Programs/Vendor"
    menu.mkdir(parents=True)
    for name in ("Painter.lnk", "Uninstall Painter.lnk", "read me.txt"):
        (menu / name).touch()
    assert installed_applications("windows", {"APPDATA": str(tmp_path)}, Path("/nowhere")) == ("Painter",)


def test_an_unknown_system_has_none(tmp_path):
    assert installed_applications("plan9", {}, tmp_path) == ()
