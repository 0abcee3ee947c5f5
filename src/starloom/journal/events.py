"""What can happen in a run: one tagged union of frozen records, in upstream's words where it has them.

Written by the orchestrator, the session and the agents; read by folds, console, page and recovery. Records carry
deltas and ids, never whole graphs (spec: constellation.md, Events). `Recorded` adds what the journal knows: the run,
the sequence number and the time. All fields are JSON values, so a record is its own stored form (`encode`, `decode`).

    run        run_started · run_paused · run_resumed · run_cancelled · run_ended
    graph      constellation_started · edit_applied · edit_refused · constellation_completed · constellation_failed
    task       task_ready · task_waiting · task_started · task_completed · task_failed · task_cancelled · task_retrying
    edge       edge_decided
    device     device_connected · device_disconnected · device_status_changed
    agent      plan_proposed · agent_response · agent_action · cost_recorded
    person     question_asked · question_answered · approval_asked · approval_answered
"""

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import ClassVar, TypeAlias, get_args

from starloom.errors import StoreError
from starloom.journal.agent_events import (
    AgentAction as AgentAction,
    AgentResponse as AgentResponse,
    ApprovalAnswered as ApprovalAnswered,
    ApprovalAsked as ApprovalAsked,
    CostRecorded as CostRecorded,
    Json as Json,
    PlanProposed as PlanProposed,
    QuestionAnswered as QuestionAnswered,
    QuestionAsked as QuestionAsked,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A request or a recipe was accepted. `source` is `request` or `recipe`."""

    kind: ClassVar[str] = "run_started"
    request: str
    source: str = "request"
    parameters: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunPaused:
    """New starts are held; running attempts go on."""

    kind: ClassVar[str] = "run_paused"
    by: str = "user"


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Starts are allowed again, or a hub took the run up after a stop (`by="recovery"`)."""

    kind: ClassVar[str] = "run_resumed"
    by: str = "user"


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """Someone asked for the run to stop; its tasks' own ends follow."""

    kind: ClassVar[str] = "run_cancelled"
    by: str = "user"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over. `stop_reason` is a named reason of device-agents.md (`finished failed cancelled …`)."""

    kind: ClassVar[str] = "run_ended"
    stop_reason: str
    state: str = ""  # the constellation's final state, empty when there was no graph
    error: str | None = None
    result: Json = None
    digest: str = ""  # SHA-256 of the graph's canonical JSON, so that a replay can prove itself (I8)


@dataclass(frozen=True, slots=True)
class ConstellationStarted:
    """The graph of this run exists; its tasks arrive as edits."""

    kind: ClassVar[str] = "constellation_started"
    constellation_id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class EditApplied:
    """One atomic edit. `commands` is its serialised form; replaying it on `version - 1` gives `version`."""

    kind: ClassVar[str] = "edit_applied"
    version: int
    commands: list[Json]
    by: str  # user | planner | rule | import
    why: str = ""
    against: int | None = None  # the version it was made against, when older
    action: str = "edit"  # edit | undo | redo, so that a replay has the same history of undo


@dataclass(frozen=True, slots=True)
class EditRefused:
    """An edit that changed nothing, and why."""

    kind: ClassVar[str] = "edit_refused"
    commands: list[Json]
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConstellationCompleted:
    """Every task has ended and none failed where it mattered; `statistics` as upstream defines them."""

    kind: ClassVar[str] = "constellation_completed"
    constellation_id: str
    state: str
    statistics: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConstellationFailed:
    """Every task has ended; some failed, or nothing could run (`reason`)."""

    kind: ClassVar[str] = "constellation_failed"
    constellation_id: str
    state: str
    reason: str = ""
    statistics: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskReady:
    """Every incoming edge is satisfied."""

    kind: ClassVar[str] = "task_ready"
    task_id: str


@dataclass(frozen=True, slots=True)
class TaskWaiting:
    """The task is ready and no connected device can take it; `reason` says what is missing. Once per reason."""

    kind: ClassVar[str] = "task_waiting"
    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """Committed before the attempt's command leaves the hub."""

    kind: ClassVar[str] = "task_started"
    task_id: str
    attempt: int
    attempt_id: str
    device_id: str


@dataclass(frozen=True, slots=True)
class TaskCompleted:
    """The attempt succeeded with this result."""

    kind: ClassVar[str] = "task_completed"
    task_id: str
    attempt: int
    result: Json = None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The task has failed for good; earlier tries are `task_retrying`. `in_doubt`: its effect may have happened."""

    kind: ClassVar[str] = "task_failed"
    task_id: str
    attempt: int
    error: str
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class TaskCancelled:
    """The task will never run, or was stopped. `reason`: user, unreachable, run_cancelled."""

    kind: ClassVar[str] = "task_cancelled"
    task_id: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TaskRetrying:
    """The attempt failed and another follows after `delay_s`."""

    kind: ClassVar[str] = "task_retrying"
    task_id: str
    attempt: int
    error: str
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EdgeDecided:
    """A line is satisfied or unsatisfiable from now on; `error` when its condition raised."""

    kind: ClassVar[str] = "edge_decided"
    line_id: str
    satisfied: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceConnected:
    """A device of the fleet is ready for work."""

    kind: ClassVar[str] = "device_connected"
    device_id: str
    platform: str = ""


@dataclass(frozen=True, slots=True)
class DeviceDisconnected:
    """A device's link is gone."""

    kind: ClassVar[str] = "device_disconnected"
    device_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceStatusChanged:
    """A device moved in its state table."""

    kind: ClassVar[str] = "device_status_changed"
    device_id: str
    status: str


Event: TypeAlias = (
    RunStarted
    | RunPaused
    | RunResumed
    | RunCancelled
    | RunEnded
    | ConstellationStarted
    | EditApplied
    | EditRefused
    | ConstellationCompleted
    | ConstellationFailed
    | TaskReady
    | TaskWaiting
    | TaskStarted
    | TaskCompleted
    | TaskFailed
    | TaskCancelled
    | TaskRetrying
    | EdgeDecided
    | DeviceConnected
    | DeviceDisconnected
    | DeviceStatusChanged
    | PlanProposed
    | AgentResponse
    | AgentAction
    | CostRecorded
    | QuestionAsked
    | QuestionAnswered
    | ApprovalAsked
    | ApprovalAnswered
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as the journal holds it. `seq` counts from 1 within its run, without gaps."""

    run_id: str
    seq: int
    at: datetime
    event: Event


_MEMBERS: tuple[type[Event], ...] = get_args(Event)
_BY_KIND: dict[str, type[Event]] = {member.kind: member for member in _MEMBERS}
_FIELDS: dict[type[Event], tuple[str, ...]] = {
    member: tuple(item.name for item in fields(member)) for member in _MEMBERS
}


def encode(event: Event) -> dict[str, Json]:
    """Return the event's fields, without its kind; shallow, so the values are shared with the event."""
    return {name: getattr(event, name) for name in _FIELDS[type(event)]}


def decode(kind: str, body: dict[str, Json]) -> Event:
    """Return the event that `encode` gave `body` for.

    Raises:
        StoreError: the kind or a field is unknown, or one is missing: the journal was written by a newer Starloom.
    """
    member = _BY_KIND.get(kind)
    if member is None:
        raise StoreError(f"The journal holds an event of unknown kind {kind!r}. Update Starloom to read this run.")
    try:
        event: Event = member(**body)
    except TypeError as error:
        raise StoreError(f"The journal's {kind!r} event does not fit this version: {error}.") from error
    return event
