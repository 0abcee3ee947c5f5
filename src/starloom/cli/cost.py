"""`starloom cost`: what models have used — tokens and money by run, role, model and day, from the journal.

A price that nobody knows is shown as unknown and makes its totals unknown; it is never taken for nothing. Looking never
disturbs a running hub.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from starloom.cli.options import json_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.journal.events import Json, Recorded
    from starloom.llm.settings import Price


# The parts of a call's tokens, by their names in a record, with their headings.
_PARTS = {
    "cached_tokens": "cached",
    "cache_write_tokens": "to cache",
    "image_tokens": "pictures",
    "reasoning_tokens": "reasoning",
}
_NAMES = ("run_id", "role", "model", "day")


@dataclass(frozen=True, slots=True)
class Line:
    """What one role used of one model in one run on one day (UTC), or less finely.

    Attributes:
        names: run, role, model and day; empty where they are summed over.
        parts: the tokens of each part of the totals; None when a call did not tell.
        estimated_calls: whose totals are our guess.
        known_cost: of the calls with a known price alone.
    """

    names: tuple[str, ...] = ("", "", "", "")
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    parts: tuple[int | None, ...] = (0,) * len(_PARTS)
    estimated_calls: int = 0
    known_cost: float = 0.0
    unknown_calls: int = 0

    @property
    def cost(self) -> float | None:
        """US dollars; None when the price of a call is unknown."""
        return None if self.unknown_calls else self.known_cost

    def plus(self, other: "Line") -> "Line":
        """Return the sum, under this line's names."""
        parts = tuple(
            None if mine is None or its is None else mine + its
            for mine, its in zip(self.parts, other.parts, strict=True)
        )
        return Line(
            self.names,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            parts=parts,
            estimated_calls=self.estimated_calls + other.estimated_calls,
            known_cost=self.known_cost + other.known_cost,
            unknown_calls=self.unknown_calls + other.unknown_calls,
        )

    def as_json(self) -> "dict[str, Json]":
        """Return the line for programs; null, of a cost or of a part: unknown."""
        return {
            **{name: value for name, value in zip(_NAMES, self.names, strict=True) if value},
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            **dict(zip(_PARTS, self.parts, strict=True)),
            "estimated_calls": self.estimated_calls,
            "cost": self.cost,
            "known_cost": self.known_cost,
            "unknown_calls": self.unknown_calls,
        }


@click.command()
@click.argument("run_id", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of the newest.")
@click.option(
    "--by",
    type=click.Choice([name.removesuffix("_id") for name in _NAMES]),
    multiple=True,
    default=("run", "role", "model"),
    show_default=True,
    help="What has a line of its own; may be given more than once.",
)
@json_option
def cost(run_id: str | None, limit: int, by: tuple[str, ...], as_json: bool) -> int:
    """Show what models used: tokens and US dollars; of RUN_ID, or of the newest runs.

    A call whose price was unknown counts with the price that `models.prices` in the settings file has for its model.
    """
    from starloom.places import places
    from starloom.settings import load_settings

    prices = load_settings(places().settings_file).models.prices
    found = cost_lines(asyncio.run(_spent(run_id, limit)), prices, by)
    total = total_of(found)
    if as_json:
        answer = {"lines": [line.as_json() for line in found], "total": total.as_json()}
        click.echo(json.dumps(answer, ensure_ascii=False))
        return 0
    if not found:
        click.echo("No model was asked." if run_id else "No model was asked in these runs.")
        return 0
    _show(found, total)
    return 0


def cost_lines(
    recorded: "Iterable[Recorded]",
    prices: "Mapping[str, Price] | None" = None,
    by: Sequence[str] = ("run", "role", "model"),
) -> list[Line]:
    """Return one line for each of what `by` names, in the order in which they first asked."""
    from starloom.journal.events import CostRecorded
    from starloom.llm.prices import at_price
    from starloom.session.costs import usage_of

    shown = [name.removesuffix("_id") in by for name in _NAMES]
    lines: dict[tuple[str, ...], Line] = {}
    for item in recorded:
        event = item.event
        if not isinstance(event, CostRecorded):
            continue
        dollars, price = event.cost, (prices or {}).get(event.model)
        if dollars is None and price is not None:
            dollars = at_price(price, usage_of(event))
        names = (str(item.run_id), event.role, event.model, item.at.date().isoformat())
        call = Line(
            tuple(name if is_shown else "" for name, is_shown in zip(names, shown, strict=True)),
            calls=1,
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            parts=tuple(getattr(event, part) for part in _PARTS),
            estimated_calls=int(event.is_estimated),
            known_cost=dollars or 0.0,
            unknown_calls=int(dollars is None),
        )
        lines[call.names] = lines[call.names].plus(call) if call.names in lines else call
    return list(lines.values())


def total_of(lines: Iterable[Line]) -> Line:
    """Return the sum of all lines."""
    total = Line()
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

    heads = [at for at in range(len(_NAMES)) if any(line.names[at] for line in lines)]
    parts = [at for at in range(len(_PARTS)) if any(line.parts[at] for line in lines)]
    table = Table(*(_NAMES[at].removesuffix("_id") for at in heads), box=None, show_footer=True)
    table.columns[0].footer = "total"
    for title, footer in zip(_titles(parts), _numbers(total, parts), strict=True):
        table.add_column(title, footer=footer, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*(line.names[at] for at in heads), *_numbers(line, parts))
    console = Console()
    console.print(table)
    if any(line.parts[at] is None for line in lines for at in parts):
        console.print("?: a provider did not say.", style="dim")
    if total.estimated_calls:
        console.print(f"~: the tokens of {total.estimated_calls} of the calls are an estimate.", style="dim")


def _titles(parts: Sequence[int]) -> list[str]:
    titles = list(_PARTS.values())
    return ["calls", "tokens in", "tokens out", *(titles[at] for at in parts), "US dollars"]


def _numbers(line: Line, parts: Sequence[int]) -> list[str]:
    mark = "~" if line.estimated_calls else ""
    told = ["?" if line.parts[at] is None else f"{line.parts[at]:,}" for at in parts]
    return [str(line.calls), f"{mark}{line.input_tokens:,}", f"{mark}{line.output_tokens:,}", *told, _money(line)]


def _money(line: Line) -> str:
    if line.cost is not None:
        return f"{line.cost:.4f}"
    return "unknown" if line.unknown_calls == line.calls else f"unknown, over {line.known_cost:.4f}"
