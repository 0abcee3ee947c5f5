"""The fleet: every device that was ever seen, every connection that is live, and the calls between them.

Made by the composition root; the hub hands it connections, the orchestrator's executor calls devices through it. Local
devices come in over an in-memory pair (`fleet.local`), so there is one path for all.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence

from starloom.aip.extension import Capability, Offer
from starloom.aip.messages import ClientMessage, ClientType, Command, MCPToolInfo, Result
from starloom.aip.protocol import NORMAL, RESTART, TRY_LATER
from starloom.aip.server_events import RegistrationAsked
from starloom.aip.transport import Transport, TransportClosed
from starloom.clock import Clock
from starloom.errors import DeviceError
from starloom.fleet.admission import fault_of, profile_of
from starloom.fleet.errors import DeviceOffline
from starloom.fleet.outposts import Outposts
from starloom.fleet.principals import Principal
from starloom.fleet.pushed import PushedTasks
from starloom.fleet.records import DeviceRecord, DeviceStatus
from starloom.fleet.registry import Registry
from starloom.fleet.seat import Order, Seat, WireSession
from starloom.fleet.sessions import Sessions
from starloom.fleet.settings import FleetSettings
from starloom.fleet.tasks import TaskHandler, safe_task_name
from starloom.fleet.toolbox import list_tools_command, tools_in, upstream_agent
from starloom.fleet.visit import Visit
from starloom.journal.events import Event

logger = logging.getLogger(__name__)

OFFERED = tuple(capability.value for capability in Capability if capability is not Capability.FILES)


class Fleet:
    """All devices and all connections.

    Args:
        clock: for deadlines and time stamps.
        settings: limits and times.
        tasks: who performs tasks that come over the wire; None: they are refused.
        observe: takes the journal's device events; synchronous, must not block.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        settings: FleetSettings | None = None,
        tasks: TaskHandler | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings or FleetSettings()
        self.pushed = PushedTasks()
        self._registry = Registry(self.settings, observe)
        self.outposts = Outposts(self._registry, clock=clock, settings=self.settings)
        self._sessions = Sessions(
            tasks, visit_of=self._visit_of, pushed=self.pushed, limit=self.settings.max_sessions_per_client
        )
        self._visits: dict[str, Visit] = {}
        self._serving: set[Visit] = set()
        self._closing = asyncio.Event()

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
    ) -> list[Result]:
        """Have a device carry out commands, stopping at the first failure, and return one Result each, in order.

        Waits until the device has a free place; `timeout_s` counts from then. Cancelled: the tool is stopped on the
        device first, then `CancelledError` leaves; a device that cannot be told (upstream's) stays busy instead.

        Commands whose every `call_id` the caller gave are attempts: a Starloom device carries each out once, and
        answers a repeated id with the first result. Say `committed` when the results are stored.

        Raises:
            UnknownDevice: it was never seen.
            DeviceOffline: it is not connected, and nothing was sent.
            DeviceLost: it went while the command was out; in doubt.
            CallTimedOut: it did not answer in time; in doubt.
        """
        seat = self._registry.seat(device_id)
        if seat.record.outpost:
            raise DeviceError(
                f"{device_id!r} is behind an upstream server and takes whole tasks, not single commands.",
                device_id=device_id,
            )
        order = Order(
            session_id=session_id,
            task_name=safe_task_name(task_name, session_id),
            timeout_s=self.settings.call_timeout_s if timeout_s is None else timeout_s,
            agent_name=agent_name or upstream_agent(seat.record.platform),
            process_name=process_name,
            root_name=root_name,
            on_progress=on_progress,
            once=bool(commands) and all(command.call_id for command in commands),
        )
        return await seat.call(commands, order)

    def committed(self, device_id: str, call_ids: Sequence[str]) -> None:
        """Tell a device that the results of these attempts are stored, so that it may forget them; best effort."""
        visit = self._visits.get(device_id)
        if visit is not None and visit.client_type is ClientType.DEVICE:
            visit.protocol.settled(call_ids)
            visit.flush()

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
        if sum(not visit.is_open for visit in self._serving) >= self.settings.max_unregistered:
            await transport.close(TRY_LATER, "too many connections have not registered yet")
            return
        visit = Visit(self, transport, principal or Principal())
        self._serving.add(visit)
        ended = TransportClosed()
        try:
            ended = await visit.run()
        except Exception:  # the border of a connection: a bug here must not end the others
            logger.exception("The connection of %r broke.", visit.client_id)
            await transport.close(1011, "internal error")
        finally:
            self._serving.discard(visit)
            seat = self._departed(visit, ended)
        if seat is not None:
            await self._await_return(seat)

    async def disconnect(self, device_id: str, reason: str = "") -> None:
        """Close a client's connection and wait for its end; nothing happens when it is not connected."""
        visit = self._visits.get(device_id)
        if visit is not None:
            visit.protocol.close(NORMAL, reason)
            visit.flush()
            await visit.over.wait()

    async def close(self) -> None:
        """Say goodbye to everyone (1012: we restart) and wait until all connections have ended."""
        self._closing.set()
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
        """Decide on a REGISTER: refuse it, or take the client in, after probing an older connection of that id."""
        target = self._visits.get(asked.message.target_id or "")
        refusal = fault_of(
            asked.message,
            visit.principal,
            device_is_online=target is not None and target.client_type is ClientType.DEVICE,
            unscoped_allowed=self.settings.unscoped_constellations
            or visit.principal.client_type is ClientType.CONSTELLATION,
        )
        if refusal is not None:
            visit.protocol.refuse(refusal.text, code=refusal.code)
        elif len(self._visits) >= self.settings.max_clients:
            visit.protocol.refuse("This server has as many clients as it takes", code="full")
        elif not await self._make_way(visit, asked):
            text = f"client_id '{asked.client_id}' is already registered; duplicate registrations are not allowed"
            visit.protocol.refuse(text, code="duplicate")
        elif not visit.over.is_set():
            self._visits[asked.client_id] = visit
            if visit.client_type is ClientType.DEVICE:
                self._take_in_device(visit, asked)
            else:
                self._take_in_constellation(visit, asked)
        visit.flush()

    # Coming and going

    async def _make_way(self, visit: Visit, asked: RegistrationAsked) -> bool:
        """Return whether the id is free now; an older connection yields to its own session, or when it is dead."""
        old = self._visits.get(asked.client_id)
        if old is None:
            return True
        seat = self._registry.find(asked.client_id)
        if not _is_resumed(seat, asked.offer):
            if old.principal != visit.principal or old.client_type is not visit.client_type or await old.probe():
                return False
            if self._visits.get(asked.client_id) not in (None, old):
                return False  # someone else was faster while we waited
        logger.info("A dead connection of %r is replaced.", asked.client_id)
        old.protocol.close(NORMAL, "replaced by a newer connection")
        old.flush()
        self._visits.pop(asked.client_id, None)
        if seat is not None:
            seat.leave(old, may_return=True)
        return True

    def _take_in_device(self, visit: Visit, asked: RegistrationAsked) -> None:
        profile = profile_of(asked.message, asked.offer)
        seat = self._registry.find(asked.client_id)
        if seat is None:
            seat = self._registry.add(asked.client_id, profile.platform, profile.device_type)
        seat.move(DeviceStatus.REGISTERING)
        resumed = _is_resumed(seat, asked.offer)
        session = seat.session if resumed and seat.session is not None else WireSession(secrets.token_urlsafe(24))
        self._accept(visit, session, resumed=resumed)
        now = self.clock.now()
        wished = (asked.offer.max_in_flight if asked.offer is not None else None) or 1
        parallel = visit.protocol.can(Capability.PARALLEL)
        seat.update(
            platform=profile.platform,
            device_type=profile.device_type,
            system_info=profile.system_info,
            tags=profile.tags,
            connected_at=now,
            last_seen=now,
            capabilities=frozenset(capability.value for capability in visit.protocol.agreed),
            max_in_flight=min(wished, self.settings.max_in_flight) if parallel else 1,
        )
        seat.occupy(visit, session)
        if resumed and seat.record.tools:
            seat.open()
        elif visit.group is not None:
            visit.group.create_task(self._list_tools(seat, visit))
        self._tell_presence(asked.client_id, online=True)

    def _accept(self, visit: Visit, session: WireSession, *, resumed: bool) -> None:
        offer = Offer(
            caps=OFFERED,
            token=session.token,
            received=session.ledger.received,
            resumed=resumed,
            heartbeat_s=self.settings.heartbeat_s,
        )
        visit.protocol.accept(self.clock.monotonic(), offer=offer, ledger=session.ledger, book=session.book)

    def _take_in_constellation(self, visit: Visit, asked: RegistrationAsked) -> None:
        visit.scope = asked.message.target_id
        offer = Offer(caps=OFFERED, heartbeat_s=self.settings.heartbeat_s)
        visit.protocol.accept(self.clock.monotonic(), offer=offer)

    async def _list_tools(self, seat: Seat, visit: Visit) -> None:
        """Ask a new device for its tools; one that does not tell takes work all the same, its tools unknown."""
        tools: tuple[MCPToolInfo, ...] = ()
        extended = visit.protocol.extended
        order = Order(
            session_id=visit.protocol.stamps.new_id(),
            task_name="list_tools",
            timeout_s=self.settings.list_tools_timeout_s,
            agent_name=upstream_agent(seat.record.platform),
        )
        try:
            tools = tools_in(await seat.call([list_tools_command(extended)], order))
        except DeviceError as error:
            logger.warning("The device %r did not list its tools: %s", seat.device_id, error)
        if seat.connection is visit:
            seat.update(tools=tools)
            seat.open()

    def _departed(self, visit: Visit, ended: TransportClosed) -> Seat | None:
        """Clear up after a connection; return the seat of a device that may come back to its session."""
        if self._visits.get(visit.client_id) is visit:
            del self._visits[visit.client_id]
        seat = self._registry.find(visit.client_id)
        if seat is None or seat.connection is not visit:
            return None
        may_return = visit.protocol.can(Capability.RESUME) and ended.code != NORMAL and not self._closing.is_set()
        may_return = may_return and self.settings.resume_window_s > 0
        seat.update(last_seen=self.clock.now())
        seat.leave(visit, may_return=may_return)
        self._tell_presence(visit.client_id, online=False)
        if not may_return:
            self._sessions.device_gone(visit.client_id)
            return None
        return seat

    async def _await_return(self, seat: Seat) -> None:
        """Give a lost device its time to come back; then its commands are lost and its tasks end."""
        waits = [
            asyncio.ensure_future(self.clock.sleep(self.settings.resume_window_s)),
            asyncio.ensure_future(seat.returned.wait()),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            if seat.connection is None and seat.awaited:
                seat.give_up()
                self._sessions.device_gone(seat.device_id)

    def _visit_of(self, client_id: str) -> Visit | None:
        return self._visits.get(client_id)

    def _tell_presence(self, device_id: str, *, online: bool) -> None:
        for visit in self._visits.values():
            if visit.client_type is ClientType.CONSTELLATION and visit.scope in (None, device_id):
                visit.protocol.presence(device_id, online)
                visit.flush()


def _is_resumed(seat: Seat | None, offer: Offer | None) -> bool:
    """Tell whether a newcomer names the seat's own session and nothing of it was lost."""
    if seat is None or seat.session is None or offer is None or offer.token is None or offer.received is None:
        return False
    same = hmac.compare_digest(offer.token.encode(), seat.session.token.encode())
    return same and seat.session.ledger.can_resume(offer.received)
