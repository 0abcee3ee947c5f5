"""The `reports` toolset: a Markdown summary of tables with their totals and of what could not be read.

Cells come from foreign documents, so they are escaped: no cell can end a table, start a heading or make a link.
"""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from starloom.safety.policy import Risk
from starloom.tools.tables import (
    Cell,
    Table,
    TableReference,
    add_totals,
    check_shape,
    money,
    money_columns,
    totals_of,
    unreadable_of,
)
from starloom.tools.toolset import Toolset, tool
from starloom.tools.workspace import Workspace

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&])")
_BARE_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto):")


class Report(TypedDict):
    """A written summary: its exact totals by currency and the number of documents left out."""

    path: str
    totals: dict[str, str]
    unreadable: int


def reports_toolset(workspace: Workspace) -> Toolset:
    """Return the `reports` toolset over a workspace."""

    def write(
        tables: Annotated[list[TableReference], Field(min_length=1, description="Tables from earlier steps.")],
        path: Annotated[str, Field(min_length=1, description="The Markdown file to make, like summary.md")],
    ) -> Report:
        """Write a Markdown summary of tables with their totals."""
        totals = [totals_of(table) for table in tables]
        together = add_totals(totals)
        with workspace.replacing(path) as part:
            part.write_text(summary(tables, totals, together), encoding="utf-8", newline="\n")
        return Report(
            path=workspace.relative(workspace.resolve(path)),
            totals={currency: money(amount) for currency, amount in together.items()},
            unreadable=len(unreadable_of(tables)),
        )

    return Toolset("reports", (tool(write, name="reports.write", risk=Risk.WRITE, destinations=("path",)),))


def summary(tables: list[Table], totals: list[dict[str, Decimal]], together: dict[str, Decimal]) -> str:
    """Return the Markdown: the sum of everything first, then each table, then what was left out."""
    lines = ["# Summary", ""]
    if together:
        lines += ["| Currency | Total |", "|---|---:|"]
        lines += [f"| {_escaped(currency)} | {money(amount)} |" for currency, amount in together.items()]
        lines += [""]
    for table, sums in zip(tables, totals, strict=True):
        lines += _section(table, sums)
    left_out = unreadable_of(tables)
    if left_out:
        lines += ["## Not read", "", "These documents are **not** part of the totals.", ""]
        lines += [f"- {_escaped(item['file'])}: {_escaped(item['reason'])}" for item in left_out]
        lines += [""]
    return "\n".join(lines)


def _section(table: Table, sums: dict[str, Decimal]) -> list[str]:
    check_shape(table)
    places = money_columns(table)
    right = places[0] if places else None
    rule = "".join("---:|" if number == right else "---|" for number in range(len(table["columns"])))
    lines = [f"## {_escaped(table['title'])}", ""]
    if table["columns"]:
        lines += [_row(list(table["columns"])), f"|{rule}"]
        lines += [_row(row) for row in table["rows"]]
        lines += [""]
    entries = "1 entry" if len(table["rows"]) == 1 else f"{len(table['rows'])} entries"
    shown = ", ".join(f"{_escaped(currency)} {money(amount)}" for currency, amount in sorted(sums.items()))
    return [*lines, f"{entries}{', together ' + shown if shown else ''}.", ""]


def _row(cells: list[Cell]) -> str:
    return f"| {' | '.join(_escaped('' if cell is None else str(cell)) for cell in cells)} |"


def _escaped(text: str) -> str:
    one_line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return _BARE_ADDRESS.sub(r"\1\\:", _MARKDOWN.sub(r"\\\1", one_line))
