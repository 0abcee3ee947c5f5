"""A device's life: dial, register, carry out commands, and dial again when the link is gone, for ever.

Called by `starloom join` with a WebSocket dialler and by the composition root with an in-memory one. Commands outlive
the link: their results wait for the next one, and a server that resumes the session gets each exactly once.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import assert_never

from msgspec import Struct

from starloom.aip.backoff import Backoff
from starloom.aip.client import Accepted, Refused, ServerReported
from starloom.aip.device import (
    AttemptsSettled,
    CommandAsked,
    CommandCancelAsked,
    DeviceEvent,
    DeviceProtocol,
    TaskEnded,
    TaskPushed,
)
from starloom.aip.extension import Capability, Offer, digest_of
from starloom.aip.ledger import Ledger
from starloom.aip.link import Link
from starloom.aip.messages import ClientMessage, Result
from starloom.aip.stamps import WireStamps
from starloom.aip.transport import Transport
from starloom.clock import Clock
from starloom.device.attempts import AttemptJournal
from starloom.device.identity import DeviceIdentity
from starloom.device.listing import list_tools
from starloom.device.runner import CommandRunner
from starloom.device.settings import DeviceSettings
from starloom.errors import DeviceError, WireError
from starloom.ids import AttemptId
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Tool

logger = logging.getLogger(__name__)

LEASE_OVER = "This device's lease was over when the command came; nothing was done."
OFFERED = (Capability.CANCEL, Capability.RESUME, Capability.PARALLEL, Capability.PROGRESS)


class DeviceState(StrEnum):
    """What the process is about."""

    CONNECTING = "connecting"
    REGISTERED = "registered"
    BUSY = "busy"
    WAITING = "waiting"
    REFUSED = "refused"


class DeviceStatusReport(Struct, frozen=True):
    """A change that a person who watches the process should see. `retry_in_s`: until the next try to connect."""

    state: DeviceState
    detail: str = ""
    retry_in_s: float | None = None


_AT_REST = DeviceStatusReport(DeviceState.REGISTERED)


async def run_device(
    connect: Callable[[], Awaitable[Transport]],
    router: ToolRouter,
    identity: DeviceIdentity,
    *,
    clock: Clock,
    on_status: Callable[[DeviceStatusReport], None] | None = None,
    settings: DeviceSettings | None = None,
    attempts: AttemptJournal | None = None,
    on_credential: Callable[[str], None] | None = None,
    spread: Callable[[], float] = random.random,
) -> None:
    """Be a device until cancelled.

    Args:
        connect: dials the server; a `WireError` from it means: try again later.
        router: the tools.
        identity: name and description, sent at registration.
        clock: for heartbeats and waits.
        on_status: told about every change; must not block.
        settings: times and limits.
        attempts: the record of attempts; the caller opens and closes it.
        on_credential: takes the token to connect with from now on, when we came by invitation; keep it safe.
        spread: numbers from 0 to 1 that spread the waits of many devices.

    Raises:
        DeviceError: `settings.give_up_after` failures in a row.
    """
    settings = settings or DeviceSettings()
    backoff = Backoff(settings.first_delay_s, settings.max_delay_s, spread)
    gave_up: DeviceError | None = None
    async with asyncio.TaskGroup() as group:
        device = _Device(router, identity, clock, group, on_status or _ignore, settings, attempts, on_credential)
        watch = group.create_task(device.watch_lease())
        while gave_up is None:
            accepted, detail = await device.connect_once(connect)
            if accepted:
                backoff.succeeded()
            delay_s = backoff.failed()
            if settings.give_up_after is not None and backoff.failures >= settings.give_up_after:
                gave_up = DeviceError(
                    f"The device {identity.device_id!r} gave up after {backoff.failures} failures in a row: {detail}",
                    device_id=identity.device_id,
                )
                device.stop()
                watch.cancel()
                continue
            device.report(DeviceStatusReport(DeviceState.WAITING, detail, delay_s))
            await clock.sleep(delay_s)
    raise gave_up


def _ignore(report: DeviceStatusReport) -> None:
    """Take a report that nobody wants."""


class _Device:
    """What lasts from one connection to the next."""

    def __init__(
        self,
        router: ToolRouter,
        identity: DeviceIdentity,
        clock: Clock,
        group: asyncio.TaskGroup,
        report: Callable[[DeviceStatusReport], None],
        settings: DeviceSettings,
        attempts: AttemptJournal | None,
        on_credential: Callable[[str], None] | None,
    ) -> None:
        self.report = report
        self._identity = identity
        self._clock = clock
        self._group = group
        self._settings = settings
        self._attempts = attempts
        self._on_credential = on_credential
        self._stamps = WireStamps(clock)
        self._token: str | None = None
        self._ledger = Ledger()
        self._protocol: DeviceProtocol | None = None
        self._link: Link[DeviceEvent, ClientMessage] | None = None
        self._next: DeviceProtocol | None = None
        self._accepted = False
        self._refusal = ""
        self._sessions = 0
        self._router = router
        self._listed: tuple[tuple[Tool, ...], str | None] | None = None  # our tools at the last dial, and their digest
        self._lease_s: float | None = None  # None: nobody waits for our end, so we may act as long as we like
        self._leased = asyncio.Event()
        self._runner = CommandRunner(
            router,
            group,
            progress=self._progress,
            max_in_flight=settings.max_in_flight,
            max_waiting=settings.max_waiting,
            attempts=attempts,
        )

    async def connect_once(self, connect: Callable[[], Awaitable[Transport]]) -> tuple[bool, str]:
        """Dial and stay until the link is gone; return whether we were accepted, and what ended it."""
        self.report(DeviceStatusReport(DeviceState.CONNECTING))
        try:
            transport = await connect()
        except WireError as error:
            return False, error.message
        self._accepted, self._refusal = False, ""
        self._next = self._new_protocol()
        self._link = Link(transport, self._next, self._clock, self._handle)
        self._next.start(self._clock.monotonic())
        ended = await self._link.run()
        return self._accepted, self._refusal or ended.message

    async def watch_lease(self) -> None:
        """Stop all work when a lease is over that nobody renewed: from then on another process may have our place."""
        while True:
            await self._leased.wait()
            left_s = self._lease_left_s()
            if left_s > 0:
                look_s = (self._lease_s or math.inf) / 20  # a sleep does not count the time a machine is suspended
                await self._clock.sleep(min(left_s, look_s))
                continue
            self._leased.clear()
            if len(self._runner):
                logger.warning("The hub was not heard for too long; what was running is stopped.")
            self._runner.stop_all()

    def _lease_left_s(self) -> float:
        """Return how long we may act; a tenth less than the hub allows, for tools that take a moment to stop."""
        if self._lease_s is None:
            return math.inf
        heard_us_at = self._protocol.heard_us_at if self._protocol is not None else None
        return (heard_us_at or 0.0) + 0.9 * self._lease_s - self._clock.monotonic()

    def stop(self) -> None:
        """End what still runs; the process gives up."""
        self._sessions += 1
        self._runner.drop()

    def _new_protocol(self) -> DeviceProtocol:
        identity, settings = self._identity, self._settings
        offer = Offer(
            caps=self._capabilities(),
            device_type=identity.device_type,
            max_in_flight=settings.max_in_flight,
            instance=self._attempts.instance if self._attempts is not None else None,
            token=self._token,
            received=self._ledger.received if self._token is not None else None,
            tools=self._digest(),
        )
        metadata = {
            "system_info": identity.system_info,
            "registration_time": self._stamps.timestamp(),
            "platform": identity.platform,
        }
        return DeviceProtocol(
            self._stamps,
            identity.device_id,
            metadata=metadata,
            offer=offer if settings.extended else None,
            ledger=self._ledger,
            heartbeat_s=settings.heartbeat_s,
            registration_timeout_s=settings.registration_timeout_s,
        )

    def _digest(self) -> str | None:
        """Return the digest of what we list as our tools, made anew when they are others than the last time."""
        tools = self._router.infos()
        if self._listed is None or self._listed[0] != tools:
            self._listed = tools, digest_of(list_tools(tools, {}))
        return self._listed[1]

    def _capabilities(self) -> tuple[str, ...]:
        offered = [*OFFERED]
        if self._attempts is not None:
            offered += (Capability.ATTEMPTS, Capability.LEASES)
        if self._settings.binary_images:
            offered.append(Capability.FILES)
        return tuple(capability.value for capability in offered)

    def _handle(self, event: DeviceEvent) -> None:
        match event:
            case CommandAsked():
                self._start(event)
            case Accepted():
                self._begin(event)
            case Refused(text):
                self._refusal = f"The server refused the registration: {text}"
                self.report(DeviceStatusReport(DeviceState.REFUSED, text))
            case CommandCancelAsked(response_id):
                self._runner.cancel(response_id)
            case AttemptsSettled(attempt_ids):
                self._settle(attempt_ids)
            case TaskPushed(request, task_name, session_id):
                self._ask_task(request, task_name, session_id)
            case TaskEnded() | ServerReported():
                pass  # nothing to do, and nothing a person could do
            case _:
                assert_never(event)

    def _begin(self, accepted: Accepted) -> None:
        """Go on with the session, or begin a new one: then nobody waits for what the old one was doing."""
        self._accepted = True
        self._protocol, self._next = self._next, None
        leased = self._protocol is not None and self._protocol.can(Capability.LEASES) and accepted.offer is not None
        self._lease_s = accepted.offer.lease_s if leased and accepted.offer is not None else None
        if self._lease_s is not None:
            self._leased.set()
        else:
            self._leased.clear()
        if accepted.offer is not None and accepted.offer.credential is not None and self._on_credential is not None:
            self._on_credential(accepted.offer.credential)
        if not accepted.resumed:
            self._sessions += 1
            self._runner.drop()
            self._ledger = (self._protocol.ledger if self._protocol is not None else None) or Ledger()
            self._token = accepted.offer.token if accepted.offer is not None else None
        self._report_work()

    def _start(self, command: CommandAsked) -> None:
        answer = partial(self._answer, self._sessions)
        if self._lease_left_s() > 0:
            self._runner.start(command, answer)
        else:
            self._runner.refuse(command, answer, LEASE_OVER)
        self._report_work()

    def _answer(self, session: int, command: CommandAsked, results: list[Result]) -> None:
        """Send results, or keep them for the next link when the session can be resumed."""
        if self._protocol is not None and session == self._sessions:
            self._protocol.results(command, results)
            self._flush()
        self._report_work()

    def _progress(self, response_id: str, text: str) -> None:
        if self._protocol is not None:
            self._protocol.progress(response_id, text)
            self._flush()

    def _ask_task(self, request: str, task_name: str | None, session_id: str | None) -> None:
        if self._protocol is not None:
            promised = session_id if self._protocol.extended else None
            self._protocol.ask_task(request, task_name, platform=self._identity.platform, session_id=promised)

    def _settle(self, attempt_ids: tuple[str, ...]) -> None:
        """Let go of stored results."""
        if self._attempts is not None:
            for attempt_id in attempt_ids:
                self._attempts.acknowledge(AttemptId(attempt_id))

    def _flush(self) -> None:
        if self._link is not None:
            self._link.flush()

    def _report_work(self) -> None:
        running = len(self._runner)
        counted = "1 command" if running == 1 else f"{running} commands"
        self.report(DeviceStatusReport(DeviceState.BUSY, counted) if running else _AT_REST)
