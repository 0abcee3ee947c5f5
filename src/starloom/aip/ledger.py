"""Numbered frames: what was sent and not yet acknowledged, and what has been processed.

One ledger per session and end; it outlives connections. Used by the protocol cores when `resume` is agreed. After a
drop each end tells the other how far it got, and sends the rest again; whatever arrives twice is processed once.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec import Struct

from starloom.aip.extension import NO_NOTE, Note
from starloom.aip.files import Attachment
from starloom.aip.messages import Envelope


class Kept(Struct, frozen=True):
    """A frame of ours that may have to be sent again, with what goes before it."""

    number: int
    message: Envelope
    note: Note
    attachments: tuple[Attachment, ...] = ()


class Arrival(Enum):
    """What to do with a numbered frame."""

    NEW = auto()  # the next one: process it
    REPEATED = auto()  # processed before: drop it
    GAP = auto()  # one before it is missing: the connection is broken


@dataclass(slots=True)
class Ledger:
    """Both directions of one session.

    Attributes:
        limit: how many unacknowledged frames are kept; beyond it the session cannot be resumed any more.
        limit_bytes: how much attachments may weigh together; likewise.
        sent: the number of the newest frame of ours.
        received: the number of the newest frame of theirs that was processed.
        acknowledged: the highest number they confirmed.
        overflowed: frames were given up; resuming would lose them.
    """

    limit: int = 1024
    limit_bytes: int = 64 * 1024 * 1024
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    told: int = 0
    overflowed: bool = False
    _weight: int = 0
    _kept: deque[Kept] = field(default_factory=deque)

    def keep(self, message: Envelope, note: Note = NO_NOTE, attachments: tuple[Attachment, ...] = ()) -> int:
        """Number a frame of ours, keep it with its note until it is acknowledged, and return its number."""
        self.sent += 1
        self._kept.append(Kept(self.sent, message, note, attachments))
        if attachments:
            self._weight += sum(len(attachment.body) for attachment in attachments)
        while len(self._kept) > self.limit or self._weight > self.limit_bytes:
            self._let_go()
            self.overflowed = True
        return self.sent

    def _let_go(self) -> None:
        gone = self._kept.popleft()
        if gone.attachments:
            self._weight -= sum(len(attachment.body) for attachment in gone.attachments)

    def acknowledge(self, number: int) -> None:
        """Let go of our frames up to a number the other end has processed; older numbers change nothing."""
        if number <= self.acknowledged:
            return
        self.acknowledged = number if number < self.sent else self.sent
        while self._kept and self._kept[0].number <= self.acknowledged:
            self._let_go()

    def unacknowledged(self) -> tuple[Kept, ...]:
        """Return our frames that must be sent again, oldest first."""
        return tuple(self._kept)

    def arrive(self, number: int) -> Arrival:
        """Judge a numbered frame of theirs; a new one counts as processed from now on."""
        if number <= self.received:
            return Arrival.REPEATED
        if number > self.received + 1:
            return Arrival.GAP
        self.received = number
        return Arrival.NEW

    def can_resume(self, their_received: int) -> bool:
        """Tell whether everything after `their_received` is still here."""
        oldest = self._kept[0].number if self._kept else self.sent + 1
        return not self.overflowed and their_received <= self.sent and their_received >= oldest - 1


class Vouched:
    """How far we had sent at each of the last three heartbeats: by the next one, the oldest must have arrived.

    A frame that a network loses while the connection lives is found out this way, when no other frame follows it.
    """

    def __init__(self) -> None:
        self._sent: deque[int] = deque(maxlen=3)

    def is_short(self, ledger: Ledger | None) -> bool:
        """Tell at a heartbeat of theirs whether something is missing, and note how far we have sent by now."""
        if ledger is None:
            return False
        short = len(self._sent) == 3 and ledger.acknowledged < self._sent[0]
        self._sent.append(ledger.sent)
        return short
