"""`starloom replay`: fold a run's events again, step by step, without any device or model, and prove the end.

The graph that the events add up to must be, byte for byte in its canonical JSON, the one that the run ended with: its
SHA-256 stands in the run's last event.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from starloom.cli.options import json_option

if TYPE_CHECKING:
    from starloom.journal.events import Recorded
    from starloom.orchestrator.state import RunState


@click.command()
@click.argument("run_id")
@click.option("--step", is_flag=True, help="Wait for Enter after each event; q ends.")
@click.option("--to", type=click.IntRange(1), help="Stop after this event and show the tasks as they were.")
@json_option
def replay(run_id: str, step: bool, to: int | None, as_json: bool) -> int:
    """Fold RUN_ID's events again; exit code 1 when the graph is not the one that the run ended with."""
    from starloom.cli.runs import events_of
    from starloom.orchestrator.endings import digest

    recorded = asyncio.run(events_of(run_id))
    shown = [item for item in recorded if to is None or item.seq <= to]
    state = _fold(run_id, shown, step=step, as_json=as_json)
    written = state.ended.digest if state.ended else ""
    found = digest(state.constellation)
    verdict = "not ended" if state.ended is None else "no digest" if not written else _same(found == written)
    if as_json:
        click.echo(json.dumps({"run_id": run_id, "events": len(shown), "digest": found, "verdict": verdict}))
    else:
        _say(state, len(shown), found, verdict, with_tasks=to is not None)
    return 1 if verdict == "different" else 0


def _fold(run_id: str, recorded: "Sequence[Recorded]", *, step: bool, as_json: bool) -> "RunState":
    from starloom.cli.timeline import told
    from starloom.ids import RunId
    from starloom.orchestrator.state import RunState

    state = RunState(RunId(run_id))
    waiting = step
    for item in recorded:
        state.apply(item.event, item.at)
        if as_json and step:
            click.echo(json.dumps({"seq": item.seq, "kind": item.event.kind, "tasks": _counts(state)}))
        elif not as_json:
            counts = ", ".join(f"{count} {status}" for status, count in _counts(state).items())
            click.echo(f"#{item.seq:<5} {told(item.event)}  [{counts}]")
            if waiting:
                waiting = not _wants_to_end()
                if not waiting:
                    break
    return state


def _wants_to_end() -> bool:
    answer: str = click.prompt("", default="", show_default=False, prompt_suffix="", err=True)
    return answer.strip().lower() == "q"


def _counts(state: "RunState") -> dict[str, int]:
    return dict(Counter(star.status.value for star in state.constellation.graph.tasks.values()))


def _same(equal: bool) -> str:
    return "same" if equal else "different"


def _say(state: "RunState", events: int, found: str, verdict: str, *, with_tasks: bool) -> None:
    if with_tasks:
        for star in state.constellation.in_insertion_order():
            result: Any = star.error if star.error else star.result
            text = "" if result is None else json.dumps(result, ensure_ascii=False)[:100]
            click.echo(f"  {star.task_id:<20} {star.status.value:<12} {text}")
    words = {
        "same": "The graph is, byte for byte, the one that the run ended with.",
        "different": "The graph is NOT the one that the run ended with. Please report this with the exported run.",
        "no digest": "The run ended without a graph's digest, so there is nothing to compare with.",
        "not ended": "The run has not ended by then, so there is nothing to compare with.",
    }
    click.echo(f"{events} events, version {state.constellation.version}, sha256 {found[:16]}…")
    click.echo(words[verdict])
