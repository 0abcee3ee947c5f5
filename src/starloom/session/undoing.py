"""Shows what a run changed on its devices, and takes it back when a person says so; for the hub and the command line.

The devices know and do it (`tools.taking_back`); here they are asked one by one, and what was taken back is journalled
behind the run's end. A device that is away, or is not ours, is named. Whatever the journal says was done and no device
can take back is shown too: a person must not believe that a run is undone when a part of it is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from starloom.aip.messages import Command, ResultStatus
from starloom.errors import DeviceError, UsageError
from starloom.ids import RunId
from starloom.journal.events import AgentAction, Json, Recorded, TaskStarted
from starloom.safety.policy import Risk
from starloom.session.galaxy import Galaxy
from starloom.session.profiles import tool_profile

_TIMEOUT_S = 60.0
_AGENT = "undo"  # who takes back, in the journal


@dataclass(frozen=True, slots=True)
class DeviceEffects:
    """What a run changed on one device, rows as `tools.taking_back.EffectRow`; `problem` when it could not be asked."""

    device_id: str
    effects: list[dict[str, Json]] = field(default_factory=list)
    problem: str | None = None
    noted: frozenset[str] = frozenset()

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON."""
        return {"device_id": self.device_id, "effects": self.effects, "problem": self.problem}


async def effects_of(galaxy: Galaxy, run_id: RunId) -> list[DeviceEffects]:
    """Return what the run changed, by device.

    Raises:
        UsageError: there is no such run.
    """
    await galaxy.known_run(run_id)
    recorded = await galaxy.journal.read(run_id)
    return [
        _with_unrecorded(galaxy, run_id, recorded, await _ask(galaxy, device_id, run_id, "effects.list"))
        for device_id in _devices(recorded)
    ]


async def undo_effects(galaxy: Galaxy, run_id: RunId) -> list[DeviceEffects]:
    """Take back what can be taken back, and return what came of each change. Idempotent.

    Raises:
        UsageError: there is no such run, or it has not ended.
    """
    await galaxy.known_run(run_id)
    if await galaxy.ending(run_id) is None:
        raise UsageError(f"Run {run_id!r} has not ended; cancel it before its effects are taken back.", run_id=run_id)
    recorded = await galaxy.journal.read(run_id)
    done = []
    for device_id in _devices(recorded):
        undone = await _ask(galaxy, device_id, run_id, "effects.undo")
        events = [_event(device_id, row) for row in undone.effects if row.get("reversible", True)]
        if events:
            await galaxy.journal.append(run_id, events)
        done.append(_with_unrecorded(galaxy, run_id, recorded, undone))
    return done


def _devices(recorded: Sequence[Recorded]) -> list[str]:
    return sorted({item.event.device_id for item in recorded if isinstance(item.event, TaskStarted)})


def _with_unrecorded(
    galaxy: Galaxy, run_id: RunId, recorded: Sequence[Recorded], device: DeviceEffects
) -> DeviceEffects:
    """Add the calls that may have changed something and of which the device has nothing on record."""
    known = next((record for record in galaxy.fleet.records() if record.device_id == device.device_id), None)
    on_record = [str(row.get("call_id")) for row in device.effects]
    rows = list(device.effects)
    for item in recorded:
        action = item.event
        if not isinstance(action, AgentAction) or action.device_id != device.device_id:
            continue
        profile = tool_profile(known, action.tool) if known is not None else None
        if action.agent == _AGENT or action.status == "skipped" or (profile and profile.risk is Risk.READ):
            continue
        is_noted = action.tool.partition(".")[0] in device.noted
        has_rows = any(call_id.startswith(f"{run_id}:{action.task_id}:") for call_id in on_record)
        if is_noted and (has_rows or action.status != "success"):
            continue
        rows.append(_unrecorded(action, _why_unrecorded(device, is_noted=is_noted)))
    return replace(device, effects=rows)


def _why_unrecorded(device: DeviceEffects, *, is_noted: bool) -> str:
    if device.problem is not None:
        return "not known: the device could not be asked"
    if is_noted:
        return "cannot be reversed: the device has nothing on record of it any more"
    return "cannot be reversed: this tool keeps no record of what it changes"


def _unrecorded(action: AgentAction, note: str) -> dict[str, Json]:
    return {
        "call_id": action.task_id,
        "kind": "call",
        "path": action.tool,
        "source": "",
        "undone": False,
        "note": note,
        "reversible": False,
    }


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
    noted = frozenset(result.result.get("noted") or ())
    return DeviceEffects(device_id, list(result.result.get("effects") or ()), noted=noted)


def _event(device_id: str, row: dict[str, Json]) -> AgentAction:
    undone = bool(row.get("undone"))
    arguments = {"kind": row.get("kind"), "path": row.get("path"), "call_id": row.get("call_id")}
    return AgentAction(
        agent=_AGENT,
        tool="effects.undo",
        arguments=arguments,
        decision="allow",
        status="success" if undone else "skipped",
        device_id=device_id,
        error=None if undone else str(row.get("note") or ""),
    )
