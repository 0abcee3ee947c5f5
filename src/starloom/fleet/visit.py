"""One incoming connection, from its first frame to its end: who it is, what it asks for, what it is told.

Made by `Fleet.serve`. Admission is in `fleet.admission`, tasks in `fleet.sessions`; this file joins the protocol core's
events to them.
"""

import asyncio
import logging
from typing import Protocol, assert_never

from starloom.aip.link import Link
from starloom.aip.messages import ClientMessage, ClientType, Result, ServerMessage
from starloom.aip.pace import Pace
from starloom.aip.server import ServerProtocol, ServerState
from starloom.aip.server_events import (
    ClientReported,
    DeviceInfoAsked,
    ProbeAnswered,
    ProbeFailed,
    Progressed,
    RegistrationAsked,
    ResultsArrived,
    ServerEvent,
    StrayResults,
    TaskAsked,
    TaskCancelAsked,
)
from starloom.aip.stamps import WireStamps
from starloom.aip.transport import Transport, TransportClosed
from starloom.background import raise_lost_cancellation
from starloom.clock import Clock
from starloom.fleet.principals import Principal
from starloom.fleet.seat import WireSession
from starloom.fleet.settings import FleetSettings

logger = logging.getLogger(__name__)


class Host(Protocol):
    """Whom a visit is paid to: the fleet. The methods get what the client asks for; they send and start, never wait."""

    @property
    def clock(self) -> Clock:
        """Return the time."""
        ...

    @property
    def settings(self) -> FleetSettings:
        """Return limits and times."""
        ...

    async def admit(self, visit: "Visit", asked: RegistrationAsked) -> None:
        """Decide on the registration; the one thing that may take time."""
        ...

    def results_arrived(self, visit: "Visit", response_id: str, results: list[Result]) -> None:
        """Take the answer to a COMMAND."""
        ...

    def progressed(self, visit: "Visit", response_id: str, text: str) -> None:
        """Take a report on a running COMMAND."""
        ...

    def task_asked(self, visit: "Visit", message: ClientMessage) -> None:
        """Begin a task or refuse it."""
        ...

    def task_cancel_asked(self, visit: "Visit", session_id: str) -> None:
        """Stop a task of this client."""
        ...

    def device_info_asked(self, visit: "Visit", message: ClientMessage) -> None:
        """Answer a question about a device or refuse it."""
        ...


class Visit:
    """One incoming connection.

    Args:
        host: whom it visits.
        transport: open, and this visit's alone.
        principal: what its token allows.
    """

    def __init__(self, host: Host, transport: Transport, principal: Principal) -> None:
        settings = host.settings
        self._host = host
        self.principal = principal
        self.session: WireSession | None = None  # of a constellation client; a device's is its seat's
        self.returned = asyncio.Event()
        self.sent_away = False  # we closed it; the process at the other end lives on
        self.scope: str | None = None  # the device a constellation client is for; None: all
        self.protocol = ServerProtocol(
            WireStamps(host.clock),
            host.clock.monotonic(),
            registration_timeout_s=settings.registration_timeout_s,
            silence_timeout_s=settings.silence_timeout_s,
            probe_timeout_s=settings.probe_timeout_s,
        )
        self._pace = Pace(settings.frames_per_second, burst=max(1, int(10 * settings.frames_per_second)))
        self._link: Link[ServerEvent, ServerMessage] = Link(
            transport, self.protocol, host.clock, self._handle, pace=self._pace
        )
        self.group: asyncio.TaskGroup | None = None
        self.over = asyncio.Event()
        self._probed: asyncio.Future[bool] | None = None

    @property
    def client_id(self) -> str:
        """Return the id in the REGISTER; empty before it."""
        return self.protocol.client_id

    @property
    def client_type(self) -> ClientType:
        """Return the registered role."""
        return self.protocol.client_type

    @property
    def may_return(self) -> bool:
        """Tell whether this is a constellation client that can come back to its tasks on another connection."""
        return self.session is not None and self.client_type is ClientType.CONSTELLATION

    @property
    def is_open(self) -> bool:
        """Tell whether the registration was confirmed."""
        return self.protocol.state is ServerState.OPEN

    def flush(self) -> None:
        """Send what the core wants sent."""
        self._link.flush()

    async def run(self) -> TransportClosed:
        """Serve the connection to its end; what it started ends with it."""
        ended = TransportClosed()
        try:
            async with asyncio.TaskGroup() as group:
                self.group = group
                ended = await self._link.run()
                raise _VisitOver
        except* _VisitOver:
            pass
        finally:
            self.over.set()
            self._answer_probe(alive=False)
        raise_lost_cancellation()
        return ended

    async def probe(self, *, fresh_s: float = 0.0) -> bool:
        """Find out whether the other end still lives: True as soon as it says anything, False when it stays silent.

        One that was heard from within `fresh_s` lives without being asked, and so does one that cannot be asked.
        """
        now = self._host.clock.monotonic()
        if self.over.is_set():
            return False
        if now - self.protocol.last_heard < fresh_s or not self.protocol.can_be_probed:
            return True
        if self._probed is None:
            self._probed = asyncio.get_running_loop().create_future()
            self.protocol.probe(now)
            self.flush()
        return await asyncio.shield(self._probed)

    def _answer_probe(self, *, alive: bool) -> None:
        probed, self._probed = self._probed, None
        if probed is not None and not probed.done():
            probed.set_result(alive)

    def _handle(self, event: ServerEvent) -> None:
        match event:
            case ResultsArrived(response_id, results):
                self._pace.give_back()  # we asked for this one
                self._host.results_arrived(self, response_id, results)
            case RegistrationAsked():
                self._register(event)
            case StrayResults(response_id):
                logger.info("Dropped results of %r for %r, which waits for nothing.", self.client_id, response_id)
            case TaskAsked(message):
                self._host.task_asked(self, message)
            case TaskCancelAsked(session_id):
                self._host.task_cancel_asked(self, session_id)
            case DeviceInfoAsked(message):
                self._host.device_info_asked(self, message)
            case Progressed(response_id, text):
                self._host.progressed(self, response_id, text)
            case ProbeAnswered() | ProbeFailed():
                self._answer_probe(alive=isinstance(event, ProbeAnswered))
            case ClientReported(text):
                logger.info("The client %r reports: %s", self.client_id, text[:300])
            case _:
                assert_never(event)

    def _register(self, asked: RegistrationAsked) -> None:
        if self.group is not None:
            self.group.create_task(self._host.admit(self, asked))


class _VisitOver(Exception):
    """Not a failure: it ends the visit's task group, and with it what the visit started."""
