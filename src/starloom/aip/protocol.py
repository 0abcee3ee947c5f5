"""The sans-I/O core that all three roles share: frames in, events and frames out, deadlines returned.

    role            module               the other end
    server          aip.server           devices and constellation clients that dialled us
    device          aip.device           a server we dialled
    constellation   aip.constellation    a server we dialled, to give its devices tasks

Nothing here awaits, reads a clock or touches a socket: `aip.link` does. A caller feeds `receive` and `expire`, acts
on the events they return, and after every call sends what `take_frames` hands out, then closes if `closing` says so.

                      receive(frame, now) ──▶ events
    frames ◀── take_frames()      deadline() ──▶ when to call expire(now) ──▶ events

A driver that looks after every frame reads `soonest` instead of `deadline()`, and has `hand_over` write at once.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from starloom.aip.extension import NO_NOTE, Capability, Note, read_note
from starloom.aip.files import Attachment
from starloom.aip.ledger import Arrival, Ledger, Vouched
from starloom.aip.messages import ClientMessage, ServerMessage

Frame = str | bytes
EventT = TypeVar("EventT")
MessageT = TypeVar("MessageT", ClientMessage, ServerMessage)

NORMAL, PROTOCOL_ERROR, UNSUPPORTED, POLICY, TOO_BIG = 1000, 1002, 1003, 1008, 1009
INTERNAL, RESTART, TRY_LATER = 1011, 1012, 1013
ACKNOWLEDGE_EVERY = 16
QUIET = Note(quiet=True)


class Stamps(Protocol):
    """Where ids and time stamps on frames come from."""

    def new_id(self) -> str:
        """Return a fresh id, a UUID4 in normal life."""
        ...

    def timestamp(self) -> str:
        """Return the wall time as ISO 8601 in UTC."""
        ...


@dataclass(frozen=True, slots=True)
class Closing:
    """The connection must be closed once all frames are sent."""

    code: int
    reason: str


class Endpoint(Generic[EventT, MessageT]):
    """One end of one connection. Subclasses add what their role may say and hear."""

    def __init__(self, stamps: Stamps, *, max_waiting: int = 4096) -> None:
        self.stamps = stamps
        self.agreed: frozenset[Capability] = frozenset()
        self.extended = False  # both ends announced themselves, so notes may be written and are read
        self.closing: Closing | None = None
        self.ledger: Ledger | None = None
        self._vouched = Vouched()
        self._waiting: deque[Frame] = deque()
        self._max_waiting = max_waiting
        self._deadlines: dict[str, float] = {}
        self.soonest = math.inf  # no deadline comes before this moment; it may be that none comes then

    def receive(self, frame: Frame, now: float) -> list[EventT]:
        """Take one frame in and return what it means, in order."""
        raise NotImplementedError

    def expire(self, now: float) -> list[EventT]:
        """Act on every deadline that has come and return what that means."""
        due = sorted((when, name) for name, when in self._deadlines.items() if when <= now)
        events: list[EventT] = []
        for _, name in due:
            if self._deadlines.pop(name, None) is not None:
                events.extend(self._expired(name, now))
        self.soonest = min(self._deadlines.values(), default=math.inf)
        return events

    def deadline(self) -> float | None:
        """Return when `expire` must be called next, in the clock's monotonic seconds; None: no need."""
        return min(self._deadlines.values(), default=None)

    def hand_over(self, send: Callable[[Frame], bool]) -> bool:
        """Give frames away, in order, as long as `send` takes them; False: some are left, or there is a goodbye."""
        waiting = self._waiting
        while waiting:
            if not send(waiting[0]):
                return False
            waiting.popleft()
        return self.closing is None

    def take_frames(self) -> list[Frame]:
        """Return what must be sent now, in order, and forget it."""
        frames = list(self._waiting)
        self._waiting.clear()
        return frames

    def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Ask for the connection to be closed after the frames that wait; the first reason stays."""
        if self.closing is None:
            self.closing = Closing(code, reason)
            self._deadlines.clear()
            self.soonest = math.inf

    def _set_deadline(self, name: str, when: float) -> None:
        self._deadlines[name] = when
        if when < self.soonest:
            self.soonest = when

    def can(self, capability: Capability) -> bool:
        """Tell whether both ends agreed on a capability."""
        return capability in self.agreed

    def _expired(self, name: str, now: float) -> list[EventT]:
        raise NotImplementedError

    def _put(self, frame: Frame) -> None:
        if self.closing is not None:
            return
        if len(self._waiting) >= self._max_waiting:
            self.close(POLICY, "the other end reads too slowly")
            return
        self._waiting.append(frame)

    def _send(
        self,
        message: MessageT,
        note: Note = NO_NOTE,
        *,
        numbered: bool = False,
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        """Send a message after its attachments; a numbered one is kept for the time after a drop, where agreed."""
        ledger = self.ledger
        if ledger is not None:
            number = ledger.keep(message, note, attachments) if numbered else None
            note = self._acknowledging(ledger, note, number)
        if attachments:
            self._put_attachments(attachments)
        self._put(message.to_json(note if note is not NO_NOTE else None))

    def _put_attachments(self, attachments: tuple[Attachment, ...]) -> None:
        for attachment in attachments:
            for frame in attachment.frames():
                self._put(frame)

    def _send_again(self, ledger: Ledger, quiet_message: Callable[[], MessageT]) -> None:
        """After a resumed registration: send what the other end has not processed."""
        for kept in ledger.unacknowledged():
            self._put_attachments(kept.attachments)
            self._put(kept.message.to_json(self._acknowledging(ledger, kept.note, kept.number)))
        if ledger.received != ledger.told:
            self._put(quiet_message().to_json(self._acknowledging(ledger, QUIET)))

    @staticmethod
    def _acknowledging(ledger: Ledger, note: Note, number: int | None = None) -> Note:
        ledger.told = ledger.received
        if note is NO_NOTE:
            return Note(seq=number, ack=ledger.received)
        return replace(note, seq=number, ack=ledger.received)

    def _read_note(self, message: ClientMessage | ServerMessage) -> Note | None:
        """Return the frame's notes, or None when the frame must not be processed (a repetition, a gap)."""
        if not self.extended:
            return NO_NOTE
        note = read_note(message.x_starloom)
        if self.ledger is None:
            return note
        if note.ack is not None:
            self.ledger.acknowledge(note.ack)
        if note.seq is None:
            return note
        match self.ledger.arrive(note.seq):
            case Arrival.NEW:
                return note
            case Arrival.REPEATED:
                return None
            case Arrival.GAP:
                self.close(PROTOCOL_ERROR, "a frame is missing")
                return None

    def _see_what_arrived(self) -> None:
        """Close, at a heartbeat of theirs, when something that we sent long before it has not arrived."""
        if self._vouched.is_short(self.ledger):
            self.close(PROTOCOL_ERROR, "a frame is missing")

    def _owes_acknowledgement(self) -> bool:
        return self.ledger is not None and self.ledger.received - self.ledger.told >= ACKNOWLEDGE_EVERY
