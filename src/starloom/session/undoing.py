"""Shows what a run changed on its devices, and takes it back when a person says so; for the hub and the command line.

The devices know and do it (`tools.effects`); here they are asked one by one, and what was taken back is journalled
behind the run's end. A device that is away, or is not ours, is named and left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from starloom.aip.messages import Command, ResultStatus
from starloom.errors import DeviceError, UsageError
from starloom.ids import RunId
from starloom.journal.events import AgentAction, Json, Recorded, TaskStarted
from starloom.session.galaxy import Galaxy

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class DeviceEffects:
    """What a run changed on one device, rows as `tools.effects.EffectRow`; `problem` when it could not be asked."""

    device_id: str
    effects: list[dict[str, Json]] = field(default_factory=list)
    problem: str | None = None

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON."""
        return {"device_id": self.device_id, "effects": self.effects, "problem": self.problem}


async def effects_of(galaxy: Galaxy, run_id: RunId) -> list[DeviceEffects]:
    """Return what the run changed, by device.

    Raises:
        UsageError: there is no such run.
    """
    await galaxy.known_run(run_id)
    return [await _ask(galaxy, device_id, run_id, "effects.list") for device_id in await _devices(galaxy, run_id)]


async def undo_effects(galaxy: Galaxy, run_id: RunId) -> list[DeviceEffects]:
    """Take back what can be taken back, and return what came of each change. Idempotent.

    Raises:
        UsageError: there is no such run, or it has not ended.
    """
    await galaxy.known_run(run_id)
    if await galaxy.ending(run_id) is None:
        raise UsageError(f"Run {run_id!r} has not ended; cancel it before its effects are taken back.", run_id=run_id)
    done = []
    for device_id in await _devices(galaxy, run_id):
        undone = await _ask(galaxy, device_id, run_id, "effects.undo")
        events = [_event(device_id, row) for row in undone.effects]
        if events:
            await galaxy.journal.append(run_id, events)
        done.append(undone)
    return done


async def _devices(galaxy: Galaxy, run_id: RunId) -> Sequence[str]:
    recorded: Sequence[Recorded] = await galaxy.journal.read(run_id)
    return sorted({item.event.device_id for item in recorded if isinstance(item.event, TaskStarted)})


async def _ask(galaxy: Galaxy, device_id: str, run_id: RunId, tool: str) -> DeviceEffects:
    command = Command(tool_name=tool, tool_type="action", parameters={"run": run_id}, call_id=tool)
    try:
        [result] = await galaxy.fleet.call(
            device_id, [command], session_id=f"{tool}:{run_id}", task_name=tool, timeout_s=_TIMEOUT_S
        )
    except DeviceError as error:
        return DeviceEffects(device_id, problem=error.message)
    if result.status is not ResultStatus.SUCCESS or not isinstance(result.result, dict):
        return DeviceEffects(device_id, problem=result.error or "The device keeps no record of effects.")
    return DeviceEffects(device_id, list(result.result.get("effects") or ()))


def _event(device_id: str, row: dict[str, Json]) -> AgentAction:
    undone = bool(row.get("undone"))
    arguments = {"kind": row.get("kind"), "path": row.get("path"), "call_id": row.get("call_id")}
    return AgentAction(
        agent="undo",
        tool="effects.undo",
        arguments=arguments,
        decision="allow",
        status="success" if undone else "skipped",
        device_id=device_id,
        error=None if undone else str(row.get("note") or ""),
    )
