import json
import subprocess
import sys
from pathlib import Path

import pytest

from starloom.tools.invoices import invoices_toolset
from starloom.tools.pdf import pages_of
from starloom.tools.toolset import ToolFailure
from starloom.tools.workspace import Workspace

EXAMPLES = Path(__file__).parents[2] / "examples" / "invoices"
TRUTH = json.loads((EXAMPLES / "truth.json").read_text(encoding="utf-8"))
INVOICE = "Muster GmbH\nInvoice no. {}\nDate: 2026-10-03\nTotal EUR {}\n"


async def read(root: Path, folder: str = "."):
    return await invoices_toolset(Workspace(root)).tools[0].function({"folder": folder})


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


@pytest.mark.parametrize("branch", ["north", "south"])
async def test_example_invoices_are_read_to_the_cent(branch):
    table = await read(EXAMPLES, branch)
    expected = [
        [
            invoice["file"].partition("/")[2],
            invoice["supplier"],
            invoice["number"],
            invoice["date"],
            "EUR",
            money(invoice["total_cents"]),
        ]
        for invoice in TRUTH["invoices"]
        if invoice["file"].startswith(branch)
    ]
    assert table["rows"] == sorted(expected)
    assert len(table["rows"]) == 6
    assert table["totals"] == {"EUR": money(TRUTH["totals_cents"][branch])}
    assert table["unreadable"] == []
    assert table["title"] == branch


def test_generating_again_gives_the_committed_files(tmp_path):
    subprocess.run([sys.executable, EXAMPLES / "generate.py", "--into", tmp_path], check=True)
    for invoice in TRUTH["invoices"]:
        fresh, committed = tmp_path / invoice["file"], EXAMPLES / invoice["file"]
        if fresh.suffix == ".pdf":
            assert pages_of(fresh, "fresh") == pages_of(committed, "committed"), invoice["file"]
        else:
            assert fresh.read_bytes() == committed.read_bytes(), invoice["file"]


def test_the_truth_covers_both_kinds_and_many_layouts():
    assert len({invoice["layout"] for invoice in TRUTH["invoices"]}) == 12
    assert {Path(invoice["file"]).suffix for invoice in TRUTH["invoices"]} == {".pdf", ".txt"}


async def test_documents_that_are_not_clear_are_listed_and_not_summed(tmp_path):
    (tmp_path / "a.txt").write_text(INVOICE.format("A-1", "10.00"))
    (tmp_path / "again.txt").write_text(INVOICE.format("A-1", "10.00"))
    (tmp_path / "other.txt").write_text(INVOICE.format("A-1", "12.00"))
    (tmp_path / "binary.txt").write_bytes(b"\x00\x01")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    (tmp_path / "note.txt").write_text("Total EUR 5.00")
    (tmp_path / ".hidden.txt").write_text("x")
    (tmp_path / "picture.png").write_bytes(b"x")
    table = await read(tmp_path)
    assert table["totals"] == {"EUR": "10.00"}
    assert {item["file"]: item["reason"] for item in table["unreadable"]} == {
        "again.txt": "it is the same invoice as a.txt; counted once",
        "other.txt": "it has the supplier and number of a.txt but says something else",
        "binary.txt": "'binary.txt' is not a text file.",
        "broken.pdf": next(item["reason"] for item in table["unreadable"] if item["file"] == "broken.pdf"),
        "note.txt": "it does not say that it is an invoice",
    }
    assert "not a readable PDF" in next(item["reason"] for item in table["unreadable"] if item["file"] == "broken.pdf")


async def test_totals_are_kept_apart_by_currency(tmp_path):
    (tmp_path / "a.txt").write_text(INVOICE.format("A-1", "0.10"))
    (tmp_path / "b.txt").write_text(INVOICE.format("A-2", "0.20"))
    (tmp_path / "c.txt").write_text(INVOICE.format("A-3", "5.00").replace("EUR", "GBP"))
    assert (await read(tmp_path))["totals"] == {"EUR": "0.30", "GBP": "5.00"}


async def test_german_text_in_an_old_encoding_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes("Müller GmbH\nRechnung Nr. 7\nSumme 5,00 €\n".encode("cp1252"))
    assert (await read(tmp_path))["rows"][0][1] == "Müller GmbH"


async def test_scan_without_text_is_listed(tmp_path):
    from fpdf import FPDF

    blank = FPDF()
    blank.add_page()
    blank.output(str(tmp_path / "scan.pdf"))
    (tmp_path / "a.txt").write_text(INVOICE.format("A-1", "10.00"))
    assert "scan" in (await read(tmp_path))["unreadable"][0]["reason"]


async def test_empty_folder_and_folder_without_any_invoice_are_failures(tmp_path):
    with pytest.raises(ToolFailure, match="holds no invoice"):
        await read(tmp_path)
    (tmp_path / "a.txt").write_text("nothing")
    with pytest.raises(ToolFailure, match="None of the 1 documents"):
        await read(tmp_path)
    with pytest.raises(ToolFailure, match="does not exist"):
        await read(tmp_path, "missing")


async def test_link_to_a_document_outside_is_not_read(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text(INVOICE.format("S-1", "99.00"))
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "a.txt").write_text(INVOICE.format("A-1", "10.00"))
    table = await read(root)
    assert table["totals"] == {"EUR": "10.00"}
    assert "symbolic link" in table["unreadable"][0]["reason"]
