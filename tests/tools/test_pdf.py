import pytest
from fpdf import FPDF

from starloom.tools.pdf import pdf_toolset
from starloom.tools.toolset import ToolFailure
from starloom.tools.workspace import Workspace


async def text_of(root, path):
    return await pdf_toolset(Workspace(root)).tools[0].function({"path": path})


async def test_text_of_every_page(tmp_path):
    made = FPDF()
    made.set_font("Helvetica", size=12)
    for number in (1, 2):
        made.add_page()
        made.cell(0, 10, f"This is page {number}")
    made.output(str(tmp_path / "a.pdf"))
    read = await text_of(tmp_path, "a.pdf")
    assert read["pages"] == 2
    assert not read["truncated"]
    assert [page.strip() for page in read["text"].split("\f")] == ["This is page 1", "This is page 2"]


async def test_file_that_is_no_pdf_is_one_clear_failure(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"hello")
    with pytest.raises(ToolFailure, match=r"'a\.pdf' is not a readable PDF"):
        await text_of(tmp_path, "a.pdf")


async def test_locked_pdf_is_refused(tmp_path):
    made = FPDF()
    made.add_page()
    made.set_encryption(owner_password="o", user_password="u")
    made.output(str(tmp_path / "a.pdf"))
    with pytest.raises(ToolFailure, match=r"locked|not a readable"):
        await text_of(tmp_path, "a.pdf")
