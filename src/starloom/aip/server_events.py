"""What the server's core tells the fleet: one frozen record per thing that happened on a connection.

A tagged union, read with `match`; made only by `aip.server`.
"""

from typing import TypeAlias

from msgspec import Struct

from starloom.aip.extension import Offer
from starloom.aip.messages import ClientMessage, Result


class RegistrationAsked(Struct, frozen=True):
    """The first frame was a REGISTER; answer with `accept` or `refuse`."""

    message: ClientMessage
    client_id: str
    offer: Offer | None


class ResultsArrived(Struct, frozen=True):
    """A COMMAND was answered: one Result per Command, in order."""

    response_id: str
    results: list[Result]


class StrayResults(Struct, frozen=True):
    """Results that answer nothing that waits; dropped. `response_id` is what they claim to answer."""

    response_id: str | None


class TaskAsked(Struct, frozen=True):
    """A TASK; answer with `acknowledge_task` or `error`, and later `end_task`."""

    message: ClientMessage


class DeviceInfoAsked(Struct, frozen=True):
    """A DEVICE_INFO_REQUEST of a constellation client; answer with `device_info` or `error`."""

    message: ClientMessage


class TaskCancelAsked(Struct, frozen=True):
    """Agreed: a constellation client wants the task with this session id stopped."""

    session_id: str


class Progressed(Struct, frozen=True):
    """Agreed: a device reports on a running command."""

    response_id: str
    text: str


class ProbeAnswered(Struct, frozen=True):
    """The client is alive: it has sent something since `probe`."""


class ProbeFailed(Struct, frozen=True):
    """Nothing came in time after `probe`."""


class ClientReported(Struct, frozen=True):
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
