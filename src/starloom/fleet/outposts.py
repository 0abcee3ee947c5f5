"""Outposts: devices behind an upstream server that we dial as a constellation client. They take whole tasks.

Run by the fleet, one connection per device, for ever (D11, D20). A task that is abandoned is cancelled where that was
agreed; towards upstream's server the connection is closed instead, which is the only thing that stops it (D8).

Source: wire specification, sections 5.2, 6.2, 6.5 and 14 (constellation).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, assert_never

from starloom.aip.backoff import Backoff
from starloom.aip.client import Accepted, Refused, ServerReported
from starloom.aip.constellation import (
    ConstellationEvent,
    ConstellationProtocol,
    DeviceInfoArrived,
    DeviceInfoRefused,
    PresenceChanged,
    TaskAcknowledged,
    TaskEnded,
    TaskRefused,
)
from starloom.aip.extension import Capability, Offer
from starloom.aip.ledger import Ledger
from starloom.aip.link import Link
from starloom.aip.messages import ClientMessage
from starloom.aip.stamps import WireStamps
from starloom.aip.transport import Transport
from starloom.clock import Clock
from starloom.errors import UsageError, WireError
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline, TaskNotTaken
from starloom.fleet.outpost_specs import OutpostSpec
from starloom.fleet.records import DeviceStatus
from starloom.fleet.registry import Registry
from starloom.fleet.seat import Seat
from starloom.fleet.settings import FleetSettings
from starloom.fleet.tasks import TaskOutcome

logger = logging.getLogger(__name__)

OFFERED = (Capability.CANCEL.value, Capability.RESUME.value, Capability.PRESENCE.value, Capability.ERRORS.value)
ENDED_BY_US = 4000  # any code of the private range: we gave the connection up to stop a task


class Outpost:
    """One device behind an upstream server.

    Args:
        spec: which device, and under which name we come.
        seat: the device's place in the fleet.
        connect: dials the server.
        clock: for deadlines and waits.
        settings: limits and times.
        spread: numbers from 0 to 1 that spread the waits.
    """

    def __init__(
        self,
        spec: OutpostSpec,
        seat: Seat,
        connect: Callable[[], Awaitable[Transport]],
        *,
        clock: Clock,
        settings: FleetSettings,
        spread: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._seat = seat
        self._connect = connect
        self._clock = clock
        self._settings = settings
        self._stamps = WireStamps(clock)
        self._backoff = Backoff(spec.reconnect_delay_s, settings.outpost_max_delay_s, spread)
        self._turn = asyncio.Lock()  # guards the device: one task at a time
        self._ends: dict[str, asyncio.Future[TaskOutcome]] = {}
        self._token: str | None = None  # names our session on the server, where one can be resumed
        self._ledger = Ledger()
        self._tasks: dict[str, bool] = {}
        self._lost_at: float | None = None
        self._refusal: str | None = None
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._protocol: ConstellationProtocol | None = None
        self._link: Link[ConstellationEvent, ClientMessage] | None = None

    async def run(self) -> None:
        """Stay connected until cancelled."""
        try:
            while True:
                detail = await self._connect_once()
                self._seat.update(trouble=detail)
                delay_s = self._backoff.failed()
                self._give_up_in_time()
                logger.info("The outpost %r is not connected: %s", self._spec.device_id, detail)
                await self._clock.sleep(delay_s)
        finally:
            self._gone()
            self._lose_all()

    async def delegate(self, request: str, *, task_id: str, timeout_s: float) -> TaskOutcome:
        """Have the device's own agent do a task and return how it says it ended.

        `completed` from an upstream server only says that it ended: look at the result (D9).

        Raises:
            DeviceOffline: not connected; nothing was sent.
            TaskNotTaken: the server refused it; it never began.
            DeviceLost: the connection went meanwhile; in doubt.
            CallTimedOut: it took too long and was stopped; in doubt.
        """
        async with self._turn:
            if self._protocol is None or not self._seat.record.status.takes_work:
                raise DeviceOffline(self._spec.device_id)
            session_id = self._protocol.ask_task(request, task_id=task_id)
            end: asyncio.Future[TaskOutcome] = asyncio.get_running_loop().create_future()
            end.add_done_callback(_take_exception)
            self._ends[session_id] = end
            self._flush()
            self._seat.update(current_task=task_id)
            self._seat.move(DeviceStatus.BUSY)
            try:
                async with asyncio.timeout(timeout_s):
                    return await asyncio.shield(end)
            except TimeoutError as error:
                await self._stop(session_id, end)
                raise CallTimedOut(self._spec.device_id, session_id, timeout_s) from error
            except asyncio.CancelledError:
                await self._stop(session_id, end)
                raise
            finally:
                self._ends.pop(session_id, None)
                self._idle()

    async def ping(self) -> float | None:
        """Return the seconds until the server answered a question about the device; None when it did not in time.

        Raises:
            DeviceOffline: not connected.
        """
        if self._protocol is None or not self._seat.record.status.is_online:
            raise DeviceOffline(self._spec.device_id)
        began = self._clock.monotonic()
        request_id = self._ask_info(self._protocol)
        answered = self._asked[request_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._settings.probe_timeout_s):
                await answered
        except TimeoutError:
            return None
        finally:
            del self._asked[request_id]
        return self._clock.monotonic() - began

    def _answer(self, request_id: str) -> None:
        asked = self._asked.get(request_id)
        if asked is not None and not asked.done():
            asked.set_result(None)

    async def _stop(self, session_id: str, end: asyncio.Future[TaskOutcome]) -> None:
        """Stop a task on the server: ask where that was agreed, else close the connection."""
        if self._protocol is None or end.done():
            return
        if self._protocol.cancel_task(session_id):
            self._flush()
            await asyncio.wait({end}, timeout=self._settings.cancel_grace_s)
        if not end.done() and self._protocol is not None:
            self._protocol.close(ENDED_BY_US, "the task was given up")
            self._flush()

    # The connection

    async def _connect_once(self) -> str:
        """Dial and stay until the link is gone; return what ended it."""
        self._seat.move(DeviceStatus.CONNECTING)
        try:
            transport = await self._connect()
        except WireError as error:
            self._seat.move(DeviceStatus.DISCONNECTED)
            return error.message
        self._seat.move(DeviceStatus.REGISTERING)
        protocol = ConstellationProtocol(
            self._stamps,
            self._spec.name,
            self._spec.device_id,
            offer=Offer(
                caps=OFFERED,
                token=self._token,
                received=self._ledger.received if self._token is not None else None,
            ),
            ledger=self._ledger,
            tasks=self._tasks,
            heartbeat_s=self._settings.outpost_heartbeat_s,
            registration_timeout_s=self._settings.registration_timeout_s,
        )
        link: Link[ConstellationEvent, ClientMessage] = Link(transport, protocol, self._clock, self._handle)
        self._protocol, self._link = protocol, link
        protocol.start(self._clock.monotonic())
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch_presence(protocol))
            ended = await link.run()
            watch.cancel()
        refusal, self._refusal = self._refusal, None
        self._gone()
        return refusal or ended.message

    async def _watch_presence(self, protocol: ConstellationProtocol) -> None:
        """Ask about the device now and then: an upstream server does not tell that it left (D22)."""
        while True:
            await self._clock.sleep(self._settings.outpost_poll_s)
            self._ask_info(protocol)

    def _ask_info(self, protocol: ConstellationProtocol) -> str:
        request_id = f"device_info_{self._spec.device_id}_{self._clock.now().timestamp()}"
        protocol.ask_device_info(request_id)
        self._flush()
        return request_id

    def _handle(self, event: ConstellationEvent) -> None:
        match event:
            case Accepted(offer, resumed):
                self._take_up(offer, resumed=resumed)
                self._accepted(frozenset(offer.caps) & frozenset(OFFERED) if offer is not None else frozenset())
            case Refused(text):
                logger.warning("The outpost %r was refused: %s", self._spec.device_id, text)
                self._refusal = f"The server refused us: {text}"
                self._seat.move(DeviceStatus.FAILED)
            case TaskAcknowledged(session_id):
                logger.info("The outpost %r began %r.", self._spec.device_id, session_id)
            case TaskRefused(session_id, text):
                refusal = TaskNotTaken(
                    f"{self._spec.device_id!r} did not take the task: {text}.", session_id=session_id
                )
                self._end(session_id, refusal)
            case TaskEnded(session_id, status, result, error):
                self._end(session_id, TaskOutcome(status, result, error))
            case DeviceInfoArrived(request_id, result):
                self._informed(result)
                self._answer(request_id)
            case PresenceChanged(_, online):
                self._present(online)
            case DeviceInfoRefused() | ServerReported():
                logger.info("The server of the outpost %r reports: %s", self._spec.device_id, event.text[:300])
            case _:
                assert_never(event)

    def _take_up(self, offer: Offer | None, *, resumed: bool) -> None:
        """Go on with the session, or begin a new one: then the ends of the old one's tasks will not come any more."""
        self._lost_at = None
        if not resumed:
            self._lose_all()
            self._ledger = (self._protocol.ledger if self._protocol is not None else None) or Ledger()
            can = self._protocol is not None and self._protocol.can(Capability.RESUME)
            self._token = offer.token if can and offer is not None else None
            return
        for session_id in self._tasks.keys() - self._ends.keys():
            if self._protocol is not None:  # nobody waits for it any more: it was abandoned while we were away
                self._protocol.cancel_task(session_id)
        self._flush()

    def _accepted(self, capabilities: frozenset[str]) -> None:
        self._backoff.succeeded()
        now = self._clock.now()
        self._seat.update(connected_at=now, last_seen=now, capabilities=capabilities, trouble=None)
        self._seat.move(DeviceStatus.CONNECTED)
        self._idle()
        if self._protocol is not None:
            self._ask_info(self._protocol)

    def _informed(self, result: Any) -> None:  # noqa: ANN401 - any JSON value
        """Take in what the server knows about the device; an `error` says that it is not there."""
        if not isinstance(result, dict):
            return
        self._present("error" not in result)
        if "error" not in result:
            self._seat.update(system_info=result, last_seen=self._clock.now())

    def _present(self, online: bool) -> None:
        status = self._seat.record.status
        if not online and status.is_online:
            self._seat.move(DeviceStatus.DISCONNECTED)
        elif online and status is DeviceStatus.DISCONNECTED and self._protocol is not None:
            self._seat.move(DeviceStatus.REGISTERING)
            self._seat.move(DeviceStatus.CONNECTED)
            self._idle()

    def _idle(self) -> None:
        if self._seat.record.status.is_online:
            self._seat.update(current_task=None)
            self._seat.move(DeviceStatus.IDLE)

    def _end(self, session_id: str, end: "TaskOutcome | TaskNotTaken | DeviceLost") -> None:
        waiting = self._ends.get(session_id)
        if waiting is None or waiting.done():
            return
        if isinstance(end, TaskOutcome):
            waiting.set_result(end)
        else:
            waiting.set_exception(end)

    def _gone(self) -> None:
        self._protocol, self._link = None, None
        if self._token is None:
            self._lose_all()
        elif self._lost_at is None:
            self._lost_at = self._clock.monotonic()
        if self._seat.record.status is not DeviceStatus.FAILED:
            self._seat.update(current_task=None)
            self._seat.move(DeviceStatus.DISCONNECTED)

    def _give_up_in_time(self) -> None:
        """Wait for the ends of tasks no longer than the server keeps them."""
        away_s = self._clock.monotonic() - self._lost_at if self._lost_at is not None else 0.0
        if away_s > self._settings.resume_window_s:
            self._token = None
            self._lose_all()

    def _lose_all(self) -> None:
        self._tasks.clear()
        for session_id in list(self._ends):
            self._end(session_id, DeviceLost(self._spec.device_id, session_id))

    def _flush(self) -> None:
        if self._link is not None:
            self._link.flush()


class Outposts:
    """All outposts, by device.

    Args:
        registry: where their seats are.
        clock: for deadlines and waits.
        settings: limits and times.
        spread: numbers from 0 to 1 that spread the waits.
    """

    def __init__(
        self, registry: Registry, *, clock: Clock, settings: FleetSettings, spread: Callable[[], float] = random.random
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._spread = spread
        self._outposts: dict[str, Outpost] = {}

    async def run(self, spec: OutpostSpec, connect: Callable[[], Awaitable[Transport]]) -> None:
        """Keep a device behind an upstream server connected until cancelled.

        Raises:
            UsageError: a device of this id is known already.
        """
        known = self._registry.find(spec.device_id)
        if known is not None and (spec.device_id in self._outposts or not known.record.outpost):
            raise UsageError(f"There is a device {spec.device_id!r} already. Give the outpost another name.")
        seat = known or self._registry.add(spec.device_id, spec.platform, spec.device_type, outpost=True)
        seat.update(tags=spec.capabilities)
        outpost = Outpost(spec, seat, connect, clock=self._clock, settings=self._settings, spread=self._spread)
        self._outposts[spec.device_id] = outpost
        try:
            await outpost.run()
        finally:
            del self._outposts[spec.device_id]

    def add(self, spec: OutpostSpec) -> None:
        """List a device that is not dialled; one that is known stays as it is."""
        if self._registry.find(spec.device_id) is None:
            seat = self._registry.add(spec.device_id, spec.platform, spec.device_type, outpost=True)
            seat.update(tags=spec.capabilities, trouble="It is not dialled: auto_connect is off in the device list.")

    async def ping(self, device_id: str) -> float | None:
        """See how fast an outpost's server answers; see `Outpost.ping`."""
        outpost = self._outposts.get(device_id)
        if outpost is None:
            raise DeviceOffline(device_id)
        return await outpost.ping()

    async def delegate(
        self, device_id: str, request: str, *, task_id: str, timeout_s: float | None = None
    ) -> TaskOutcome:
        """Have an outpost's own agent do a task; see `Outpost.delegate`."""
        outpost = self._outposts.get(device_id)
        if outpost is None:
            raise DeviceOffline(device_id)
        limit_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        return await outpost.delegate(request, task_id=task_id, timeout_s=limit_s)


def _take_exception(end: asyncio.Future[TaskOutcome]) -> None:
    """Mark an abandoned end's exception as seen."""
    if not end.cancelled():
        end.exception()
