"""`starloom cost`: what models have used — tokens and money by run, role and model, from the journal.

A price that nobody knows is shown as unknown and makes its totals unknown; it is never taken for nothing. Looking never
disturbs a running hub.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from starloom.cli.options import json_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.journal.events import Json, Recorded
    from starloom.llm.settings import Price


@dataclass(frozen=True, slots=True)
class Line:
    """What one role used of one model in one run. `known_cost`: of the calls with a known price alone."""

    run_id: str
    role: str
    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    known_cost: float = 0.0
    unknown_calls: int = 0

    @property
    def cost(self) -> float | None:
        """US dollars; None when the price of a call is unknown."""
        return None if self.unknown_calls else self.known_cost

    def plus(self, other: "Line") -> "Line":
        """Return the sum, under this line's names."""
        return replace(
            self,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            known_cost=self.known_cost + other.known_cost,
            unknown_calls=self.unknown_calls + other.unknown_calls,
        )

    def as_json(self) -> "dict[str, Json]":
        """Return the line for programs; `cost` null: unknown."""
        return {
            "run_id": self.run_id,
            "role": self.role,
            "model": self.model,
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "known_cost": self.known_cost,
            "unknown_calls": self.unknown_calls,
        }


@click.command()
@click.argument("run_id", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of the newest.")
@json_option
def cost(run_id: str | None, limit: int, as_json: bool) -> int:
    """Show what models used: tokens and US dollars by run, role and model; of RUN_ID, or of the newest runs.

    A call whose price was unknown counts with the price that `models.prices` in the settings file has for its model.
    """
    from starloom.places import places
    from starloom.settings import load_settings

    prices = load_settings(places().settings_file).models.prices
    found = cost_lines(asyncio.run(_spent(run_id, limit)), prices)
    total = total_of(found)
    if as_json:
        rows = [line.as_json() for line in found]
        summed = {name: value for name, value in total.as_json().items() if name not in ("run_id", "role", "model")}
        click.echo(json.dumps({"lines": rows, "total": summed}, ensure_ascii=False))
        return 0
    if not found:
        click.echo("No model was asked." if run_id else "No model was asked in these runs.")
        return 0
    _show(found, total)
    return 0


def cost_lines(recorded: "Iterable[Recorded]", prices: "Mapping[str, Price] | None" = None) -> list[Line]:
    """Return one line for each run, role and model, in the order in which they first asked."""
    from starloom.journal.events import CostRecorded

    lines: dict[tuple[str, str, str], Line] = {}
    for item in recorded:
        event = item.event
        if not isinstance(event, CostRecorded):
            continue
        dollars = event.cost
        price = (prices or {}).get(event.model)
        if dollars is None and price is not None:
            dollars = (event.input_tokens * price.input + event.output_tokens * price.output) / 1_000_000
        call = Line(
            *(str(item.run_id), event.role, event.model),
            calls=1,
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            known_cost=dollars or 0.0,
            unknown_calls=int(dollars is None),
        )
        key = (call.run_id, call.role, call.model)
        lines[key] = lines[key].plus(call) if key in lines else call
    return list(lines.values())


def total_of(lines: Iterable[Line]) -> Line:
    """Return the sum of all lines."""
    total = Line("", "", "")
    for line in lines:
        total = total.plus(line)
    return total


async def _spent(run_id: str | None, limit: int) -> "list[Recorded]":
    from starloom.ids import RunId
    from starloom.places import places
    from starloom.session.build import reading_journal

    found: list[Recorded] = []
    async with reading_journal(places()) as journal:
        if run_id is not None:
            recorded = await journal.read(RunId(run_id))
            if not recorded:
                raise UsageError(f"There is no run {run_id!r}. `starloom runs` lists them.", run_id=run_id)
            return list(recorded)
        for record in await journal.runs(limit):
            async for chunk in journal.chunks(record.run_id):
                found += [item for item in chunk if item.event.kind == "cost_recorded"]
    return found


def _show(lines: list[Line], total: Line) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("run", "role", "model", box=None, show_footer=True)
    table.columns[0].footer = "total"
    for title, footer in (
        ("calls", str(total.calls)),
        ("tokens in", f"{total.input_tokens:,}"),
        ("tokens out", f"{total.output_tokens:,}"),
        ("US dollars", _money(total)),
    ):
        table.add_column(title, footer=footer, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            *(line.run_id, line.role, line.model, str(line.calls)),
            *(f"{line.input_tokens:,}", f"{line.output_tokens:,}", _money(line)),
        )
    Console().print(table)


def _money(line: Line) -> str:
    if line.cost is not None:
        return f"{line.cost:.4f}"
    return "unknown" if line.unknown_calls == line.calls else f"unknown, over {line.known_cost:.4f}"
