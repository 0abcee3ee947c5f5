"""What reaches the scheduler and what leaves it: facts and wishes in, events and commands out; plain frozen values.

the runner ── Signal ──▶ scheduler.decide ──▶ Decision(events → journal, then commands → the runner acts)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from starloom.constellation.commands import Command as EditCommand
from starloom.errors import UsageError
from starloom.ids import AttemptId, DeviceId, TaskId
from starloom.journal.events import EditApplied, Event, Json
from starloom.orchestrator.ports import Attempt, DeviceOffer, Outcome
from starloom.orchestrator.replanning import Surprise
from starloom.orchestrator.requests import Request


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins, or goes on after a restart."""


@dataclass(frozen=True, slots=True)
class DevicesChanged:
    """These devices are connected now."""

    offers: tuple[DeviceOffer, ...]


class AttemptEnded(NamedTuple):
    """An attempt ended. `holds_device`: it was given up, and the device has not let go yet (`DeviceFreed` follows)."""

    task_id: TaskId
    attempt_id: AttemptId
    device_id: DeviceId
    outcome: Outcome
    holds_device: bool = False


@dataclass(frozen=True, slots=True)
class AttemptStopped:
    """An attempt was stopped as commanded. `in_doubt`: nobody knows whether its effect happened."""

    task_id: TaskId
    attempt_id: AttemptId
    device_id: DeviceId
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class DeviceFreed:
    """A device that would not let go of an attempt has let go."""

    device_id: DeviceId


@dataclass(frozen=True, slots=True)
class Woke:
    """The timer that `Wake` asked for went off."""

    key: tuple[str, str]


@dataclass(frozen=True, slots=True)
class EditProposed:
    """Someone wants to edit. `action` is `edit`, `undo` or `redo`; a `request` that came before is answered as then."""

    commands: Sequence[Mapping[str, Any] | EditCommand]
    by: str
    why: str = ""
    against: int | None = None
    action: str = "edit"
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class PlannerAnswered:
    """The planner answered; no commands: nothing to change. `error` when it could not be had."""

    commands: Sequence[Mapping[str, Any]] = ()
    why: str = ""
    against: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """Hold new starts (`on`), or allow them again."""

    on: bool
    by: str = "user"


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Stop the run, or one task, or everything on one device."""

    by: str = "user"
    reason: str = ""
    task_id: TaskId | None = None
    device_id: DeviceId | None = None


@dataclass(frozen=True, slots=True)
class MessageGiven:
    """The user said something about the run."""

    text: str


Signal: TypeAlias = (
    Begin
    | DevicesChanged
    | AttemptEnded
    | AttemptStopped
    | DeviceFreed
    | Woke
    | EditProposed
    | PlannerAnswered
    | PauseAsked
    | CancelAsked
    | MessageGiven
)


class Start(NamedTuple):
    """Perform this attempt. `is_resumed`: it was running when the hub stopped; ask the device about it first."""

    attempt: Attempt
    is_resumed: bool = False
    is_idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this attempt on its device, then report `AttemptStopped`."""

    task_id: TaskId
    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class Wake:
    """Report `Woke(key)` after this many seconds; a later one with the same key replaces it."""

    key: tuple[str, str]
    after_s: float


@dataclass(frozen=True, slots=True)
class CallPlanner:
    """Ask the planner about these surprises."""

    surprises: tuple[Surprise, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the one who proposed an edit; `edit` None without `problem`: there was nothing to undo."""

    edit: EditApplied | None = None
    problem: UsageError | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over."""

    stop_reason: str
    error: str | None = None
    statistics: dict[str, Json] = field(default_factory=dict)


Command: TypeAlias = Start | Stop | Wake | CallPlanner | Reply | Finish


@dataclass(slots=True)
class Decision:
    """What follows from a signal: append the events, then carry out the commands. `notes` go to the log.

    `keys` holds idempotency keys of events by their place in `events`.
    """

    events: list[Event] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    keys: dict[int, str] = field(default_factory=dict)


def form_of(command: Mapping[str, Json] | EditCommand) -> dict[str, Json]:
    """Return an editor's command in its serialised form."""
    return command.to_dict() if isinstance(command, EditCommand) else dict(command)
