"""The `invoices` toolset: a folder of invoices becomes a table with exact totals.

A document that is not understood with confidence is listed with the reason, never guessed and never in the totals.
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field

from starloom.safety.paths import PathRefused
from starloom.safety.policy import Risk
from starloom.tools.invoice_text import Invoice, Unclear, read_invoice
from starloom.tools.pdf import LARGEST_PDF_BYTES, pages_of, require_pdf
from starloom.tools.tables import AMOUNT_COLUMN, CURRENCY_COLUMN, Cell, Table, Unreadable, money
from starloom.tools.text import decode
from starloom.tools.toolset import ToolFailure, Toolset, check_stopped, tool
from starloom.tools.workspace import Workspace

_PDF = ".pdf"
_TEXT = frozenset({".txt", ".text"})
_MOST_DOCUMENTS = 1_000
_LARGEST_TEXT_BYTES = 2 * 1024 * 1024
COLUMNS = ("file", "supplier", "invoice", "date", CURRENCY_COLUMN, AMOUNT_COLUMN)


def invoices_toolset(workspace: Workspace) -> Toolset:
    """Return the `invoices` toolset over a workspace."""

    def read(
        folder: Annotated[str, Field(min_length=1, description="The folder that holds the invoices.")],
    ) -> Table:
        """Read every invoice (PDF or text) in a folder: supplier, number, date, currency and total of each."""
        return _read(workspace, folder)

    return Toolset("invoices", (tool(read, name="invoices.read", risk=Risk.READ, destinations=("folder",)),))


def _read(workspace: Workspace, folder: str) -> Table:
    documents = _documents(workspace, folder)
    rows: list[list[Cell]] = []
    unreadable: list[Unreadable] = []
    seen: dict[tuple[str | None, str], tuple[str, Invoice]] = {}
    totals: dict[str, Decimal] = {}
    for name, document in _each(workspace, documents):
        if isinstance(document, Unclear):
            unreadable.append(Unreadable(file=name, reason=document.reason))
            continue
        first = seen.setdefault((document.supplier, document.number), (name, document))
        if first[0] != name:
            unreadable.append(Unreadable(file=name, reason=_repetition(first, document)))
            continue
        rows.append(_row(name, document))
        totals[document.currency] = totals.get(document.currency, Decimal(0)) + document.total
    if not rows:
        reasons = "; ".join(f"{item['file']}: {item['reason']}" for item in unreadable[:3])
        raise ToolFailure(f"None of the {len(documents)} documents in {folder!r} could be read ({reasons}).")
    shown = {currency: money(amount) for currency, amount in sorted(totals.items())}
    title = workspace.relative(workspace.folder(folder))
    return Table(title=title, columns=list(COLUMNS), rows=rows, totals=shown, unreadable=unreadable)


def _documents(workspace: Workspace, folder: str) -> list[Path]:
    """Return the documents directly in a folder, by name; hidden files are none.

    Raises:
        ToolFailure: there is none, there are too many, or there are PDFs and nothing to read them with.
    """
    real = workspace.folder(folder)
    found = sorted(
        item
        for item in real.iterdir()
        if not item.name.startswith(".") and item.suffix.lower() in {_PDF, *_TEXT} and not item.is_dir()
    )
    if not found:
        raise ToolFailure(f"The folder {folder!r} holds no invoice: no PDF and no text file.", path=folder)
    if len(found) > _MOST_DOCUMENTS:
        raise ToolFailure(
            f"The folder {folder!r} holds {len(found)} documents, more than {_MOST_DOCUMENTS}.", path=folder
        )
    if any(item.suffix.lower() == _PDF for item in found):
        require_pdf()
    return found


def _each(workspace: Workspace, documents: list[Path]) -> Iterator[tuple[str, Invoice | Unclear]]:
    for item in documents:
        check_stopped()
        try:
            text = _text(workspace, workspace.relative(item))
        except (ToolFailure, PathRefused) as failure:
            check_stopped()
            yield item.name, Unclear(failure.message)
        else:
            yield item.name, read_invoice(text)


def _text(workspace: Workspace, path: str) -> str:
    if Path(path).suffix.lower() == _PDF:
        return "\f".join(pages_of(workspace.file(path, limit_bytes=LARGEST_PDF_BYTES), path))
    return decode(workspace.file(path, limit_bytes=_LARGEST_TEXT_BYTES).read_bytes(), path)


def _repetition(first: tuple[str, Invoice], again: Invoice) -> str:
    name, invoice = first
    if invoice == again:
        return f"it is the same invoice as {name}; counted once"
    return f"it has the supplier and number of {name} but says something else"


def _row(name: str, invoice: Invoice) -> list[Cell]:
    written = None if invoice.date is None else invoice.date.isoformat()
    return [name, invoice.supplier, invoice.number, written, invoice.currency, money(invoice.total)]
