"""The fleet: every device that was ever seen, every connection that is live, and the calls between them.

Made by the composition root; the hub hands it connections, the orchestrator's executor calls devices through it. Local
devices come in over an in-memory pair (`fleet.local`), so there is one path for all.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec.structs import replace

from starloom.aip.messages import ClientMessage, ClientType, Command, Result
from starloom.aip.protocol import NORMAL, RESTART, TRY_LATER
from starloom.aip.server_events import RegistrationAsked
from starloom.aip.transport import Transport, TransportClosed
from starloom.blobs import without_blobs
from starloom.clock import Clock
from starloom.errors import DeviceError
from starloom.fleet.arrivals import Arrivals
from starloom.fleet.credentials import CredentialStore
from starloom.fleet.errors import DeviceOffline
from starloom.fleet.known import KnownDevices
from starloom.fleet.outposts import Outposts
from starloom.fleet.principals import Principal
from starloom.fleet.pushed import PushedTasks
from starloom.fleet.records import DeviceRecord
from starloom.fleet.registry import Registry
from starloom.fleet.seat import Lease, Order, Seat
from starloom.fleet.sessions import Sessions
from starloom.fleet.settings import FleetSettings
from starloom.fleet.tasks import TaskHandler, safe_task_name
from starloom.fleet.toolbox import upstream_agent
from starloom.fleet.visit import Visit
from starloom.journal.events import Event

logger = logging.getLogger(__name__)


class Fleet:
    """All devices and all connections.

    Args:
        clock: for deadlines and time stamps.
        settings: limits and times.
        tasks: who performs tasks that come over the wire; None: they are refused.
        credentials: turns invitations into credentials; None: nobody comes by invitation.
        known: the devices of earlier lives of the hub; None: they are forgotten with it.
        observe: takes the journal's device events; synchronous, must not block.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        settings: FleetSettings | None = None,
        tasks: TaskHandler | None = None,
        credentials: CredentialStore | None = None,
        known: KnownDevices | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self.clock = clock
        self.credentials = credentials
        self.settings = settings or FleetSettings()
        self.pushed = PushedTasks()
        self._visits: dict[str, Visit] = {}
        self._registry = Registry(self.settings, observe, known, now=clock.monotonic())
        self.outposts = Outposts(self._registry, clock=clock, settings=self.settings)
        self._sessions = Sessions(
            tasks, visit_of=self._visits.get, pushed=self.pushed, limit=self.settings.max_sessions_per_client
        )
        self._serving: set[Visit] = set()
        self._arrivals = Arrivals(
            self._registry,
            self._sessions,
            self._visits,
            clock=clock,
            settings=self.settings,
            credentials=credentials,
        )

    # What the composition root and the hub ask

    def records(self) -> tuple[DeviceRecord, ...]:
        """Return every device ever seen, offline ones too, in the order of their ids."""
        return self._registry.records()

    def get(self, device_id: str) -> DeviceRecord:
        """Return one device.

        Raises:
            UnknownDevice: it was never seen.
        """
        return self._registry.seat(device_id).record

    def describe(
        self, device_id: str, *, display_name: str | None = None, groups: Sequence[str] | None = None
    ) -> DeviceRecord:
        """Change what people say of a device and return its record; None leaves a value as it is, `""` ends a name.

        Raises:
            UnknownDevice: it was never seen.
        """
        seat = self._registry.seat(device_id)
        if display_name is not None:
            seat.update(display_name=display_name or None)
        if groups is not None:
            seat.update(groups=tuple(sorted(set(groups))))
        self._registry.remember(seat)
        return seat.record

    def held_s(self, device_id: str) -> float | None:
        """Return for how long a lost process still has its place to itself; None when the place is free or taken."""
        seat = self._registry.seat(device_id)
        now = self.clock.monotonic()
        return None if seat.connection is not None or seat.lease.allows(None, now) else seat.lease.until - now

    def release(self, device_id: str) -> None:
        """Free a lost device's place for any process and stop waiting for its commands, which are lost, in doubt.

        Only for one who knows that the last process has ended; an id that was never seen has nothing to free.

        Raises:
            DeviceError: it is connected, so the place is its own.
        """
        seat = self._registry.find(device_id)
        if seat is None:
            return
        if seat.connection is not None:
            raise DeviceError(f"{device_id!r} is connected, so there is nothing to release.", device_id=device_id)
        if seat.awaited:
            seat.give_up()
            self._sessions.device_gone(device_id)
        seat.lease = Lease()
        self._registry.remember(seat)

    async def forget(self, device_id: str, *, force: bool = False) -> None:
        """Remove what is known of a device, and its credential with it: nobody is to come by a token that is not shown.

        Args:
            device_id: the device.
            force: put it out when it is connected, and free its place.

        Raises:
            UnknownDevice: it was never seen.
            DeviceError: it is connected or may still act, and `force` was not said; or it is an outpost.
        """
        seat = self._registry.seat(device_id)
        if seat.record.outpost:
            raise DeviceError(f"{device_id!r} comes from the list of outposts; take it out there.", device_id=device_id)
        if not force:
            self._see_that_it_is_gone(seat)
        if self.credentials is not None:
            self.credentials.revoke(device_id)
        await self.expel(device_id, "the device was forgotten")
        self.release(device_id)
        self._registry.forget(device_id)

    def _see_that_it_is_gone(self, seat: Seat) -> None:
        device_id, held_s = seat.device_id, self.held_s(seat.device_id)
        if seat.connection is not None:
            text = f"{device_id!r} is connected. Stop it there, or put it out and forget it with --force."
            raise DeviceError(text, device_id=device_id)
        if held_s is not None:
            text = (
                f"{device_id!r} was lost and its process may act for {held_s:.0f} s more. Wait, or say with --force "
                "that it has ended."
            )
            raise DeviceError(text, device_id=device_id)

    def client_ids(self) -> tuple[str, ...]:
        """Return the ids of all registered clients, devices and constellation clients mixed as upstream does."""
        return tuple(self._visits)

    def changes(self) -> AsyncIterator[None]:
        """Yield at once, and then after changes of any record; one yield may stand for many changes."""
        return self._registry.changes()

    async def call(
        self,
        device_id: str,
        commands: Sequence[Command],
        *,
        session_id: str,
        task_name: str = "",
        agent_name: str | None = None,
        process_name: str | None = "",
        root_name: str | None = "",
        timeout_s: float | None = None,
        on_progress: Callable[[str], None] | None = None,
        once: bool = False,
        blobs: bool = False,
    ) -> list[Result]:
        """Have a device carry out commands, stopping at the first failure, and return one Result each, in order.

        Waits until the device has a free place; `timeout_s` counts from then. Cancelled: the tool is stopped on the
        device first, then `CancelledError` leaves; a device that cannot be told (upstream's) stays busy instead.

        `once`: the commands' call ids are attempts, unique for ever: a Starloom device with a record carries each out
        once and answers a repeated id with the first result. Say `committed` when the results are stored.

        `blobs`: what tools hand over as bytes comes as a `Blob` where the device can send it so, else as a data URL.

        Raises:
            UnknownDevice: it was never seen.
            DeviceOffline: it is not connected, and nothing was sent.
            DeviceLost: it went while the command was out; in doubt.
            CallTimedOut: it did not answer in time; in doubt.
        """
        seat = self._registry.seat(device_id)
        if seat.described.outpost:
            raise DeviceError(
                f"{device_id!r} is behind an upstream server and takes whole tasks, not single commands.",
                device_id=device_id,
            )
        order = Order(
            session_id=session_id,
            task_name=safe_task_name(task_name, session_id),
            timeout_s=self.settings.call_timeout_s if timeout_s is None else timeout_s,
            agent_name=agent_name or upstream_agent(seat.described.platform),
            process_name=process_name,
            root_name=root_name,
            on_progress=on_progress,
            once=once,
        )
        results = await seat.call(commands, order)
        return results if blobs else [_without_blobs(result) for result in results]

    def committed(self, device_id: str, call_ids: Sequence[str]) -> None:
        """Tell a device that the results of these attempts are stored, so that it may forget them; best effort."""
        visit = self._visits.get(device_id)
        if visit is not None and visit.client_type is ClientType.DEVICE:
            visit.protocol.settled(call_ids)
            visit.flush()

    async def ping(self, device_id: str) -> float | None:
        """Return the seconds until a device showed that it lives; None when it stayed silent.

        Raises:
            DeviceOffline: it is not connected.
        """
        seat = self._registry.find(device_id)
        if seat is not None and seat.record.outpost:
            return await self.outposts.ping(device_id)
        visit = self._visits.get(device_id)
        if visit is None:
            raise DeviceOffline(device_id)
        began = self.clock.monotonic()
        return self.clock.monotonic() - began if await visit.probe() else None

    def push_task(self, device_id: str, request: str, task_name: str = "") -> str:
        """Have a device ask for a task of its own, and return the id that its session will have.

        Source: upstream's `POST /api/dispatch`, wire specification section 6.1; D26 is remedied.
        """
        visit = self._visits.get(device_id)
        if visit is None or visit.client_type is not ClientType.DEVICE:
            raise DeviceOffline(device_id)
        session_id = visit.protocol.stamps.new_id()
        name = safe_task_name(task_name, session_id)
        self.pushed.add(device_id, name, session_id)
        visit.protocol.push_task(request, session_id=session_id, task_name=name)
        visit.flush()
        return session_id

    async def serve(self, transport: Transport, *, principal: Principal | None = None) -> None:
        """Serve one incoming connection to its end; the token was checked, `principal` is what it allows.

        Never raises for what the other end does. A device that is lost and may resume keeps this waiting for it.
        """
        if self._arrivals.closing.is_set():
            await transport.close(RESTART, "the hub stops")
            return
        if len(self._serving) - len(self._visits) >= self.settings.max_unregistered:
            await transport.close(TRY_LATER, "too many connections have not registered yet")
            return
        visit = Visit(self, transport, principal or Principal())
        self._serving.add(visit)
        ended = TransportClosed(NORMAL)  # when we are cancelled, nobody will wait for the device's return
        try:
            ended = await visit.run()
        except Exception:  # the border of a connection: a bug here must not end the others
            logger.exception("The connection of %r broke.", visit.client_id)
            await transport.close(1011, "internal error")
        except asyncio.CancelledError:
            self._sessions.leave(visit)
            raise
        finally:
            self._serving.discard(visit)
            seat = self._arrivals.departed(visit, ended)
        if seat is not None:
            await self._arrivals.await_return(seat)
        elif visit.may_return:
            await self._arrivals.await_requester(visit, ended)

    async def disconnect(self, client_id: str, reason: str = "", *, code: int = NORMAL) -> None:
        """Close a client's connection and wait for its end; nothing happens when it is not connected."""
        visit = self._visits.get(client_id)
        if visit is not None:
            visit.sent_away = True
            visit.protocol.close(code, reason)
            visit.flush()
            await visit.over.wait()

    async def expel(self, client_id: str, reason: str = "") -> None:
        """Close every connection that is this client's by registration or by its token; for a revoked credential."""
        visits = [visit for visit in self._serving if client_id in (visit.client_id, visit.principal.client_id)]
        for visit in visits:
            visit.sent_away = True
            visit.protocol.close(NORMAL, reason)
            visit.flush()
        for visit in visits:
            await visit.over.wait()

    async def close(self) -> None:
        """Say goodbye to everyone (1012: we restart), newcomers too, and wait until all connections have ended."""
        self._arrivals.closing.set()
        visits = list(self._serving)
        for visit in visits:
            visit.protocol.close(RESTART, "the hub stops")
            visit.flush()
        for visit in visits:
            await visit.over.wait()

    # What visits and sessions tell and ask

    def results_arrived(self, visit: Visit, response_id: str, results: list[Result]) -> None:
        """Hand an answer to its call."""
        seat = self._registry.find(visit.client_id)
        if seat is not None and seat.connection is visit:
            seat.settle(response_id, results)

    def progressed(self, visit: Visit, response_id: str, text: str) -> None:
        """Hand a report on a running command to its call."""
        seat = self._registry.find(visit.client_id)
        if seat is not None and seat.connection is visit:
            seat.progressed(response_id, text)

    def task_asked(self, visit: Visit, message: ClientMessage) -> None:
        """Begin a task or refuse it."""
        self._sessions.begin(visit, message)

    def task_cancel_asked(self, visit: Visit, session_id: str) -> None:
        """Stop a task of this client."""
        self._sessions.cancel(visit, session_id)

    def device_info_asked(self, visit: Visit, message: ClientMessage) -> None:
        """Answer a constellation client's question about a device within its scope, from what the device registered."""
        target = message.target_id or visit.scope
        if visit.scope not in (None, target):
            text = "Not authorized to request device info for this device"
            visit.protocol.error(text, code="scope", about=message)
            return
        seat = self._registry.find(target or "")
        known = seat.record.system_info if seat is not None and seat.record.status.is_online else {}
        missing = {"error": f"Device {target} not found or no system info available"}
        visit.protocol.device_info(message.request_id, known or missing)

    async def admit(self, visit: Visit, asked: RegistrationAsked) -> None:
        """Decide on a REGISTER."""
        await self._arrivals.admit(visit, asked)


def _without_blobs(result: Result) -> Result:
    plain = without_blobs(result.result)
    return result if plain is result.result else replace(result, result=plain)
