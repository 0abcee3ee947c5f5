"""What the server's core tells the fleet: one frozen record per thing that happened on a connection.

A tagged union, read with `match`; made only by `aip.server`.
"""

from dataclasses import dataclass
from typing import TypeAlias

from starloom.aip.extension import Offer
from starloom.aip.messages import ClientMessage, Result


@dataclass(frozen=True, slots=True)
class RegistrationAsked:
    """The first frame was a REGISTER; answer with `accept` or `refuse`."""

    message: ClientMessage
    client_id: str
    offer: Offer | None


@dataclass(frozen=True, slots=True)
class ResultsArrived:
    """A COMMAND was answered: one Result per Command, in order."""

    response_id: str
    results: list[Result]


@dataclass(frozen=True, slots=True)
class StrayResults:
    """Results that answer nothing that waits; dropped. `response_id` is what they claim to answer."""

    response_id: str | None


@dataclass(frozen=True, slots=True)
class TaskAsked:
    """A TASK; answer with `acknowledge_task` or `error`, and later `end_task`."""

    message: ClientMessage


@dataclass(frozen=True, slots=True)
class DeviceInfoAsked:
    """A DEVICE_INFO_REQUEST of a constellation client; answer with `device_info` or `error`."""

    message: ClientMessage


@dataclass(frozen=True, slots=True)
class TaskCancelAsked:
    """Agreed: a constellation client wants the task with this session id stopped."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """Agreed: a device reports on a running command."""

    response_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """The client is alive: it has sent something since `probe`."""


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """Nothing came in time after `probe`."""


@dataclass(frozen=True, slots=True)
class ClientReported:
    """The client sent an ERROR or pushed device information; for the log. Never echoed."""

    text: str


ServerEvent: TypeAlias = (
    RegistrationAsked
    | ResultsArrived
    | StrayResults
    | TaskAsked
    | DeviceInfoAsked
    | TaskCancelAsked
    | Progressed
    | ProbeAnswered
    | ProbeFailed
    | ClientReported
)
