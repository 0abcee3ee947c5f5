"""One device's place in the fleet: its record, its queue of calls, and its session, which outlives connections.

Owned by the fleet. A call waits for its turn (first come, first served), is sent as one COMMAND, and frees its place
only when the device has answered or its session is given up; so a cancelled call whose device cannot be told to stop
keeps the device busy until the late answer is in (D6, D8, D21).
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from msgspec import Struct

from starloom.aip.commands import CommandBook
from starloom.aip.ledger import Ledger
from starloom.aip.messages import Command, Result
from starloom.aip.server import ServerProtocol
from starloom.deadlines import Deadlines
from starloom.errors import Bug
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline
from starloom.fleet.records import TRANSITIONS, DeviceRecord, DeviceStatus


class Connection(Protocol):
    """What a seat needs of the live connection."""

    @property
    def protocol(self) -> ServerProtocol:
        """Return the server's core of the connection."""
        ...

    def flush(self) -> None:
        """Send what the core wants sent."""
        ...


@dataclass(slots=True)
class WireSession:
    """What survives a drop: the numbered frames, the commands that wait, and the secret that names them."""

    token: str = field(repr=False)
    ledger: Ledger = field(default_factory=Ledger)
    book: CommandBook = field(default_factory=CommandBook)


@dataclass(slots=True)
class Lease:
    """Who may act as this device: a process known by its record of attempts, until a moment when it has surely stopped.

    holder ── is lost ──▶ until = last heard + lease ──▶ over        holder ── says goodbye with nothing to do ──▶ over
    """

    holder: str | None = None
    until: float = math.inf

    def allows(self, instance: str | None, now: float) -> bool:
        """Tell whether a process may take the place; the holder and its heirs by the same record always may."""
        return self.holder is None or instance == self.holder or now >= self.until


class Order(Struct, frozen=True):
    """What a COMMAND says besides its commands. `timeout_s` limits the whole answer."""

    session_id: str
    task_name: str
    timeout_s: float
    agent_name: str | None = None
    process_name: str | None = ""
    root_name: str | None = ""
    on_progress: Callable[[str], None] | None = None
    once: bool = False


class Seat:
    """One device's place.

    Args:
        record: what is known of the device so far.
        cancel_grace_s: how long a cancelled call waits for the device to say that it stopped.
        late_answer_s: how long a device that cannot be told to stop stays busy with an abandoned command.
        limits: when calls have taken too long; all seats share it.
        changed: called after every change of the record, with the status before it.
    """

    def __init__(
        self,
        record: DeviceRecord,
        *,
        cancel_grace_s: float,
        late_answer_s: float,
        limits: Deadlines,
        changed: Callable[["Seat", DeviceStatus], None],
    ) -> None:
        self.status = record.status
        # Its status and task may be old: they change with every call, and `record` puts them in.
        self.described = record
        self._task = record.current_task
        self.connection: Connection | None = None
        self.session: WireSession | None = None
        self.awaited = False  # lost, but its session may still be resumed
        self.returned = asyncio.Event()
        self.lease = Lease()
        self._cancel_grace_s = cancel_grace_s
        self._late_answer_s = late_answer_s
        self._limits = limits
        self._is_open = False
        self._changed = changed
        self._answers: dict[str, tuple[Order, asyncio.Future[list[Result] | None]]] = {}
        self._untold: set[str] = set()  # commands to stop, when the device comes back to hear it
        self._turns: deque[asyncio.Future[None]] = deque()
        self._granted = 0

    @property
    def record(self) -> DeviceRecord:
        """Return what is known of the device now."""
        if self.described.status is not self.status or self.described.current_task != self._task:
            self.described = replace(self.described, status=self.status, current_task=self._task)
        return self.described

    @property
    def device_id(self) -> str:
        """Return the device's id."""
        return self.described.device_id

    @property
    def has_work(self) -> bool:
        """Tell whether a command is out that the device has not answered."""
        return bool(self._answers)

    # Its states

    def move(self, status: DeviceStatus) -> None:
        """Go to another state of the table; staying is no move."""
        if status is self.status:
            return
        if status not in TRANSITIONS[self.status]:
            raise Bug(f"The device {self.device_id!r} cannot go from {self.status} to {status}.")
        before, self.status = self.status, status
        self._changed(self, before)

    def update(self, **values: object) -> None:
        """Replace fields of the record other than its status, and tell whoever watches."""
        self.described = replace(self.record, **values)  # type: ignore[arg-type]  # checked by the dataclass
        self._task = self.described.current_task
        self._changed(self, self.status)

    # Its connection

    def occupy(self, connection: Connection, session: WireSession) -> None:
        """Take the device in on a new, accepted connection; a session other than before gives the old one up."""
        if self.session is not session:
            self.give_up()
        self.connection, self.session, self.awaited, self._is_open = connection, session, False, False
        for response_id in sorted(self._untold & self._answers.keys()):
            if connection.protocol.cancel(response_id):
                self._untold.discard(response_id)
        self.returned.set()
        self.move(DeviceStatus.CONNECTED)

    def open(self) -> None:
        """Show the device as ready for work: its tools are known, or it resumed."""
        self._is_open = True
        self._show_work()
        self._grant()

    def leave(self, connection: Connection, *, may_return: bool) -> bool:
        """Note that a connection has ended; False when it was not this device's live one (any more)."""
        if self.connection is not connection:
            return False
        self.connection, self._is_open = None, False
        self.awaited = may_return
        self.returned.clear()
        if not may_return:
            self.give_up()
        self.move(DeviceStatus.DISCONNECTED)
        return True

    def give_up(self) -> None:
        """End the session: every call that waits for an answer is lost, every call that waits for a turn is refused."""
        self.session, self.awaited = None, False
        answers, self._answers = self._answers, {}
        self._untold.clear()
        for order, answer in answers.values():
            if not answer.done():
                answer.set_exception(DeviceLost(self.device_id, order.session_id))
                answer.exception()  # seen: perhaps nobody waits any more
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_exception(DeviceOffline(self.device_id))

    # Its calls

    async def call(self, commands: Sequence[Command], order: Order) -> list[Result]:
        """Send one COMMAND when it is this call's turn, and return its results in order."""
        if self._turns or not self._is_free():
            await self._turn()
        connection = self.connection
        if connection is None:
            raise DeviceOffline(self.device_id)
        response_id = connection.protocol.command(
            commands,
            session_id=order.session_id,
            task_name=order.task_name,
            agent_name=order.agent_name,
            process_name=order.process_name,
            root_name=order.root_name,
            timeout_s=order.timeout_s,
            once=order.once,
        )
        answer = self._expect(response_id, order)
        limit = self._limits.add(order.timeout_s, _time_is_up, answer)
        connection.flush()
        self._show_work()
        try:
            results = await answer
        except asyncio.CancelledError:
            await self._stop(response_id, order)
            raise
        finally:
            self._limits.drop(limit)
        if results is None:
            await self._stop(response_id, order)
            raise CallTimedOut(self.device_id, order.session_id, order.timeout_s)
        return results

    def _expect(self, response_id: str, order: Order) -> "asyncio.Future[list[Result] | None]":
        """Return what will hold the answer to a COMMAND; None in it: the time is up."""
        answer: asyncio.Future[list[Result] | None] = asyncio.get_running_loop().create_future()
        self._answers[response_id] = (order, answer)
        return answer

    def settle(self, response_id: str, results: list[Result]) -> None:
        """Hand an answer to the call that waits for it, and the place to the next call."""
        self._untold.discard(response_id)
        _, answer = self._answers.pop(response_id, (None, None))
        if answer is not None and not answer.done():
            answer.set_result(results)
        self._show_work()
        self._grant()

    def progressed(self, response_id: str, text: str) -> None:
        """Hand a report on a running command to whoever called."""
        order, _ = self._answers.get(response_id, (None, None))
        if order is not None and order.on_progress is not None:
            order.on_progress(text)

    def forget(self, response_id: str) -> None:
        """Stop waiting for an answer that nobody wants any more; its place becomes free."""
        if self.session is not None:
            self.session.book.forget(response_id)
        self._untold.discard(response_id)
        if self._answers.pop(response_id, None) is not None:
            self._show_work()
            self._grant()

    async def _turn(self) -> None:
        """Wait for a free place; the caller takes it with a COMMAND at once."""
        if self.connection is None and not self.awaited:
            raise DeviceOffline(self.device_id)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._granted -= 1
                self._grant()
            raise
        self._granted -= 1

    def _is_free(self) -> bool:
        return self.connection is not None and len(self._answers) + self._granted < self.described.max_in_flight

    def _grant(self) -> None:
        while self._turns and self._is_free():
            turn = self._turns.popleft()
            if not turn.done():
                self._granted += 1
                turn.set_result(None)

    async def _stop(self, response_id: str, order: Order) -> None:
        """Have the device stop a command and wait until it says so; where it cannot be told, it stays busy a while."""
        if response_id not in self._answers:
            return
        answer = self._expect(response_id, order)
        told = self.connection is not None and self.connection.protocol.cancel(response_id)
        if told and self.connection is not None:
            self.connection.flush()
        else:
            self._untold.add(response_id)
        if told or self.awaited:
            await asyncio.wait({answer}, timeout=self._cancel_grace_s)
        if not answer.done():
            asyncio.get_running_loop().call_later(self._late_answer_s, self.forget, response_id)

    def _show_work(self) -> None:
        """Bring status and current task in line with the commands that are out."""
        if not self._is_open:
            return
        task, status, before = None, DeviceStatus.IDLE, self.status
        for order, _ in self._answers.values():
            task, status = order.task_name or order.session_id, DeviceStatus.BUSY
            break
        if task != self._task or status is not before:
            self._task, self.status = task, status
            self._changed(self, before)


def _time_is_up(answer: "asyncio.Future[list[Result] | None]") -> None:
    if not answer.done():
        answer.set_result(None)
