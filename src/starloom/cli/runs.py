"""`starloom runs`: what the journal holds — list, look at one, let old ones go, carry one to another machine.

`starloom runs` alone lists; `starloom runs RUN` shows that run from its first event on. Looking never disturbs a
running hub; `prune` and `import` write, so they want the journal for themselves.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.cli.options import json_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.journal.artefacts import FileArtefacts
    from starloom.journal.events import Recorded
    from starloom.journal.sqlite import SqliteJournal

_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


class _RunsGroup(click.Group):
    """A group whose unknown first word is a run's id."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "events", events, args


@click.group(cls=_RunsGroup, invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of the newest.")
@json_option
@click.pass_context
def runs(ctx: click.Context, limit: int, as_json: bool) -> int:
    """List the newest runs, or show one: starloom runs RUN."""
    return 0 if ctx.invoked_subcommand else asyncio.run(_list(limit, as_json=as_json))


@runs.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of the newest.")
@json_option
def list_runs(limit: int, as_json: bool) -> int:
    """List the newest runs."""
    return asyncio.run(_list(limit, as_json=as_json))


@click.command()
@click.argument("run_id")
@json_option
@click.pass_context
def events(ctx: click.Context, run_id: str, as_json: bool) -> int:
    """Show RUN_ID event by event, as it looked while it ran."""
    from starloom.cli.console import JsonView, RunView

    before = ctx.parent.params.get("as_json") if ctx.parent else False
    view = JsonView() if as_json or before else RunView()
    with view:
        for recorded in asyncio.run(events_of(run_id)):
            view.show(recorded)
    return 0


@runs.command()
@click.argument("run_id")
@click.option("--all", "everything", is_flag=True, help="Small steps too: edges decided, tasks ready, devices seen.")
@json_option
def show(run_id: str, everything: bool, as_json: bool) -> int:
    """Show RUN_ID's timeline: what happened when, how long it took, what it cost, what people decided."""
    from starloom.cli.timeline import summary, timeline

    recorded = asyncio.run(events_of(run_id))
    lines = timeline(recorded, everything=everything)
    if as_json:
        rows = [{"seq": line.seq, "at_s": line.at_s, "what": line.what} for line in lines]
        click.echo(json.dumps({"run_id": run_id, "summary": summary(recorded), "timeline": rows}, ensure_ascii=False))
        return 0
    for line in lines:
        click.echo(f"{line.at_s:>9.2f} s  #{line.seq:<5} {line.what}")
    click.echo()
    for name, value in summary(recorded).items():
        click.echo(f"{name.replace('_', ' '):<16} {value}")
    return 0


@runs.command()
@click.option("--keep", type=click.IntRange(0), default=50, show_default=True, help="The newest that stay in any case.")
@click.option("--older-than", metavar="AGE", help="Only runs that ended longer ago: 30d, 12h, 90m.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def prune(keep: int, older_than: str | None, yes: bool, as_json: bool) -> int:
    """Let old runs go. Runs that have not ended always stay."""
    age = _age(older_than) if older_than else None
    return asyncio.run(_prune(keep, age, yes=yes or as_json, as_json=as_json))


@runs.command("export")
@click.argument("run_id")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def export_(run_id: str, file: Path, as_json: bool) -> int:
    """Write RUN_ID with all that belongs to it into one FILE (.jsonl.gz)."""
    return asyncio.run(_export(run_id, file, as_json=as_json))


@runs.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--as", "as_run_id", metavar="ID", help="Another id, when the journal has a run of this one already.")
@json_option
def import_(file: Path, as_run_id: str | None, as_json: bool) -> int:
    """Add the run of FILE to the journal."""
    return asyncio.run(_import(file, as_run_id, as_json=as_json))


async def events_of(run_id: str) -> "tuple[Recorded, ...]":
    """Return a run's events, beside a running hub if there is one.

    Raises:
        UsageError: there is no such run.
    """
    from starloom.ids import RunId
    from starloom.places import places
    from starloom.session.build import reading_journal

    async with reading_journal(places()) as journal:
        recorded = await journal.read(RunId(run_id))
    if not recorded:
        raise UsageError(f"There is no run {run_id!r}. `starloom runs` lists them.", run_id=run_id)
    return recorded


async def _list(limit: int, *, as_json: bool) -> int:
    from starloom.places import places
    from starloom.session.build import reading_journal
    from starloom.session.views import run_row

    place = places()
    rows = []
    if await asyncio.to_thread(place.journal.exists):
        async with reading_journal(place) as journal:
            rows = [run_row(record) for record in await journal.runs(limit)]
    if as_json:
        click.echo(json.dumps({"runs": rows}, ensure_ascii=False))
        return 0
    if not rows:
        click.echo("No runs yet. Start with `starloom demo`, or `starloom run 'what you want done'`.")
        return 0
    from rich.console import Console

    from starloom.cli.console import table_of

    for row in rows:
        row["started_at"] = row["started_at"][:19].replace("T", " ")
        row["stop_reason"] = row["stop_reason"] or "open (starloom resume)"
    columns = {"run_id": "run", "started_at": "started (UTC)", "stop_reason": "ended", "request": "request"}
    Console().print(table_of(rows, columns))
    return 0


@asynccontextmanager
async def _journal(*, read_only: bool) -> "AsyncIterator[tuple[SqliteJournal, FileArtefacts]]":
    from starloom.clock import SystemClock
    from starloom.journal.artefacts import FileArtefacts
    from starloom.journal.sqlite import SqliteJournal
    from starloom.places import places

    place = places()
    journal = await SqliteJournal.open(place.journal, SystemClock(), read_only=read_only)
    try:
        yield journal, FileArtefacts(place.data / "artefacts")
    finally:
        await journal.close()


async def _prune(keep: int, age: timedelta | None, *, yes: bool, as_json: bool) -> int:
    from starloom.clock import SystemClock
    from starloom.journal.retention import prunable, prune as let_go

    now = SystemClock().now()
    before = now - age if age is not None else None
    async with _journal(read_only=False) as (journal, artefacts):
        doomed = prunable(await journal.runs(1 << 30), keep=keep, ended_before=before)
        if doomed and not yes and not click.confirm(f"Remove {len(doomed)} runs for good?", err=True):
            return 6
        gone = await let_go(journal, artefacts, now=now, keep=keep, ended_before=before)
    if as_json:
        removed = [record.run_id for record in gone.runs]
        click.echo(json.dumps({"removed": removed, "artefacts": gone.artefacts, "artefact_bytes": gone.artefact_bytes}))
    else:
        click.echo(f"Removed {len(gone.runs)} runs and {gone.artefacts} files ({gone.artefact_bytes} bytes).")
    return 0


async def _export(run_id: str, file: Path, *, as_json: bool) -> int:
    from starloom.ids import RunId
    from starloom.journal.portable import export_run

    async with _journal(read_only=True) as (journal, artefacts):
        written = await export_run(journal, RunId(run_id), file, artefacts)
    return _say_carried(written.run_id, written.events, written.artefacts, f"into {file}", as_json=as_json)


async def _import(file: Path, as_run_id: str | None, *, as_json: bool) -> int:
    from starloom.ids import RunId
    from starloom.journal.portable import import_run

    async with _journal(read_only=False) as (journal, artefacts):
        found = await import_run(journal, file, artefacts, as_run_id=RunId(as_run_id) if as_run_id else None)
    return _say_carried(found.run_id, found.events, found.artefacts, "into the journal", as_json=as_json)


def _say_carried(run_id: str, events_: int, artefacts: int, where: str, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"run_id": run_id, "events": events_, "artefacts": artefacts}))
    else:
        click.echo(f"{run_id}: {events_} events and {artefacts} files {where}.")
    return 0


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"(\d+)([dhm])", text)
    if match is None:
        raise UsageError(f"An age is a number and a unit, like 30d, 12h or 90m; not {text!r}.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
