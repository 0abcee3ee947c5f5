"""Facts about effects on files that are damaged, strange or not ours to read."""

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest

from starloom.tools.cells import NotAWorkbook, cells_of
from starloom.tools.comparing import differences, snapshot
from starloom.tools.effects import recording
from starloom.tools.taking_back import take_back
from starloom.tools.workspace import Workspace

Members = dict[str, bytes]
SHEET = "xl/worksheets/sheet1.xml"


def write_book(path: Path, **values: object) -> None:
    book = openpyxl.Workbook()
    for place, value in values.items():
        book.active[place] = value
    book.save(path)


def change_members(path: Path, change: Callable[[Members], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)


def cut(name: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        members[name] = members[name][:-30]

    return change


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        members[name] = re.sub(old, new, members[name])

    return change


DAMAGES = {
    "sheet cut": cut(SHEET),
    "book cut": cut("xl/workbook.xml"),
    "styles cut": cut("xl/styles.xml"),
    "no types": replaced("[Content_Types].xml", rb"(?s).+", b""),
    "row zero": replaced(SHEET, rb'r="A1"', b'r="A0"'),
    "no such style": replaced(SHEET, rb'r="A1"', b'r="A1" s="999"'),
    "no such text": replaced(SHEET, rb'(?s)<c r="B1".*?</c>', b'<c r="B1" t="s"><v>999</v></c>'),
    "entity": replaced(
        SHEET, rb"(?s)^.*?<worksheet", b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]><worksheet'
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_workbook_can_be_written_over(tmp_path, damage):
    path = tmp_path / "a.xlsx"
    write_book(path, A1=1, B1="x")
    change_members(path, damage)
    with recording("run:t:0"), Workspace(tmp_path).replacing("a.xlsx") as part:
        write_book(part, A1=2)
    assert openpyxl.load_workbook(path).active["A1"].value == 2


def test_an_encrypted_workbook_is_none(tmp_path):
    path = tmp_path / "a.xlsx"
    write_book(path, A1=1)
    raw = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        for found in re.finditer(re.escape(mark), bytes(raw)):
            raw[found.start() + flags] |= 1
    path.write_bytes(raw)
    with pytest.raises(NotAWorkbook):
        cells_of(path)


def test_a_workbook_built_in_another_way_stays_and_says_so(tmp_path):
    def rename(members: Members) -> None:
        members["xl/workbook2.xml"] = members.pop("xl/workbook.xml")
        members["xl/_rels/workbook2.xml.rels"] = members.pop("xl/_rels/workbook.xml.rels")
        for name in ("[Content_Types].xml", "_rels/.rels"):
            members[name] = members[name].replace(b"xl/workbook.xml", b"xl/workbook2.xml")

    place, path = Workspace(tmp_path), tmp_path / "a.xlsx"
    write_book(path, A1=1, B1="x")
    with recording("run:t:0"), place.replacing("a.xlsx") as part:
        write_book(part, A1=2, B1="x")
    write_book(path, A1=2, B1="someone's")
    change_members(path, rename)
    (row,) = take_back(place.effects, "run")
    assert not row["undone"]
    assert row["note"]


def test_a_line_behind_a_torn_one_is_kept(tmp_path):
    place = Workspace(tmp_path)
    with recording("run:t:0"), place.replacing("a.txt") as part:
        part.write_text("1")
    (record,) = tmp_path.glob(".starloom/effects/*/record.jsonl")
    with record.open("a") as file:
        file.write('{"call_id": "run:t:0", "kind": "cre')
    with recording("run:t:0"), place.replacing("b.txt") as part:
        part.write_text("2")
    assert [effect.path for effect, _ in place.effects.of_run("run")] == ["a.txt", "b.txt"]


def test_a_name_that_is_no_text_can_be_told(tmp_path):
    place = Workspace(tmp_path)
    with recording("run:t:0"):
        place.effects.will_run(tmp_path, "a program")
        before = snapshot(tmp_path)
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).touch()
        place.effects.has_run(list(differences(before, snapshot(tmp_path))))
    rows = take_back(place.effects, "run")
    assert any(row["undone"] for row in rows)
    json.dumps(rows, ensure_ascii=False).encode()


def test_a_folder_that_could_not_be_read_before_is_not_new(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine").write_text("1")
    scandir = os.scandir

    def denied(path: str) -> object:  # tests may run as root, whom no mode keeps out
        if path == str(folder):
            raise PermissionError(path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", denied)
        before = snapshot(tmp_path)
    assert list(differences(before, snapshot(tmp_path))) == []


def test_only_our_own_folder_is_passed_over(tmp_path):
    before = snapshot(tmp_path)
    (tmp_path / ".starloomx").touch()
    assert [kind for kind, _ in differences(before, snapshot(tmp_path))] == ["appeared"]
