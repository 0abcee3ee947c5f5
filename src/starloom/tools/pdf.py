"""The `pdf` toolset, and the one place that knows pypdf.

`pages_of` is also what `invoices` reads PDFs with. Needs the `office` extra.
"""

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from starloom.safety.policy import Risk
from starloom.tools.files import FilePath
from starloom.tools.toolset import ToolFailure, Toolset, check_stopped, tool
from starloom.tools.workspace import Workspace

if TYPE_CHECKING:
    from pypdf import PageObject

LARGEST_PDF_BYTES = 50 * 1024 * 1024
MOST_PAGES = 500
_LONGEST_TEXT = 200_000


class PdfText(TypedDict):
    """The text of a PDF's pages, separated by form feeds; `truncated` when `text` is only its beginning."""

    path: str
    pages: int
    text: str
    truncated: bool


def pdf_toolset(workspace: Workspace) -> Toolset:
    """Return the `pdf` toolset over a workspace."""

    def text(path: FilePath) -> PdfText:
        """Read the text of a PDF file, laid out as on its pages."""
        real = workspace.file(path, limit_bytes=LARGEST_PDF_BYTES)
        pages = pages_of(real, path)
        whole = "\f".join(pages)
        return PdfText(
            path=workspace.relative(real),
            pages=len(pages),
            text=whole[:_LONGEST_TEXT],
            truncated=len(whole) > _LONGEST_TEXT,
        )

    return Toolset("pdf", (tool(text, name="pdf.text", risk=Risk.READ, destinations=("path",)),))


def pages_of(real: Path, name: str) -> list[str]:
    """Return each page's text with its columns kept apart by spaces; `name` is what messages call the file.

    Raises:
        ToolFailure: the office extra is missing, or the file is no PDF, broken, locked, too long, or only pictures.
    """
    try:
        import pypdf
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise missing_office("Reading a PDF") from error
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of every oddity; what matters is raised below
    try:
        with real.open("rb") as file:
            reader = pypdf.PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise ToolFailure(f"{name!r} is locked with a password.", path=name)
            if len(reader.pages) > MOST_PAGES:
                raise ToolFailure(f"{name!r} has {len(reader.pages)} pages, more than {MOST_PAGES}.", path=name)
            pages = [_page_text(page) for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        # pypdf meets broken files with any of these; each means that the file cannot be trusted to be read right
        raise ToolFailure(f"{name!r} is not a readable PDF: {error}", path=name) from error
    if not any(page.strip() for page in pages):
        raise ToolFailure(f"{name!r} has no text; it seems to be a scan.", path=name)
    return pages


def require_pdf() -> None:
    """Check that PDFs can be read on this device at all.

    Raises:
        ToolFailure: the office extra is missing.
    """
    if importlib.util.find_spec("pypdf") is None:
        raise missing_office("Reading a PDF")


def missing_office(what: str) -> ToolFailure:
    """Return the failure of a tool whose libraries are not installed."""
    return ToolFailure(f"{what} needs the office libraries on this device: pip install 'starloom[office]'")


def _page_text(page: "PageObject") -> str:
    check_stopped()
    return str(page.extract_text(extraction_mode="layout"))
