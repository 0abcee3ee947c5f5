"""`starloom runs`: what the journal holds; with a run's id, that run from its first event on."""

import asyncio
import json

import click

from starloom.cli.options import json_option


@click.command()
@click.argument("run_id", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of the newest.")
@json_option
def runs(run_id: str | None, limit: int, as_json: bool) -> int:
    """List the newest runs, or show RUN_ID event by event."""
    return asyncio.run(_show(run_id, as_json=as_json) if run_id else _list(limit, as_json=as_json))


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


async def _show(run_id: str, *, as_json: bool) -> int:
    from starloom.cli.console import JsonView, RunView
    from starloom.errors import UsageError
    from starloom.ids import RunId
    from starloom.places import places
    from starloom.session.build import reading_journal

    async with reading_journal(places()) as journal:
        events = await journal.read(RunId(run_id))
    if not events:
        raise UsageError(f"There is no run {run_id!r}. `starloom runs` lists them.", run_id=run_id)
    view = JsonView() if as_json else RunView()
    with view:
        for recorded in events:
            view.show(recorded)
    return 0
