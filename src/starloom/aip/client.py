"""The client's end of one connection, as far as devices and constellation clients agree: register, stay, be probed.

The roles' own halves are `aip.device` and `aip.constellation`. Sans I/O.

    new ── start() ──▶ registering ── first frame, status ok ──▶ open ── close() ──▶ closing
                          └── anything else, or nothing in time: Refused, closing

Source: wire specification, sections 5.1 to 5.4.
"""

from collections import deque
from enum import Enum, auto
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from starloom.aip.extension import Capability, Note, Offer, answered_offer
from starloom.aip.ledger import Ledger
from starloom.aip.messages import (
    EXTENSION,
    ClientMessage,
    ClientMessageType,
    ClientType,
    Json,
    MalformedMessage,
    ServerMessage,
    ServerMessageType,
    TaskStatus,
)
from starloom.aip.protocol import NORMAL, POLICY, PROTOCOL_ERROR, QUIET, Endpoint, Frame, Stamps


class Accepted(Struct, frozen=True):
    """The server confirmed the registration. `offer` None: upstream's server; `resumed`: the old session goes on."""

    offer: Offer | None
    resumed: bool


class Refused(Struct, frozen=True):
    """The server refused the registration, or did not answer it; a new connection is needed."""

    text: str


class ServerReported(Struct, frozen=True):
    """The server sent an ERROR about nothing that waits, or a frame that makes no sense here; for the log."""

    text: str


ClientEvent: TypeAlias = Accepted | Refused | ServerReported
OwnEventT = TypeVar("OwnEventT")


class ClientState(Enum):
    """Where a connection stands."""

    NEW = auto()
    REGISTERING = auto()
    OPEN = auto()


class ClientProtocol(Endpoint[OwnEventT | ClientEvent, ClientMessage]):
    """What both client roles share.

    Args:
        stamps: ids and time stamps for frames.
        client_id: the registered name, on every frame.
        client_type: the role, on every frame.
        target_id: the device that a constellation client is for.
        metadata: what REGISTER tells besides the extension.
        offer: our announcement; None: speak upstream's protocol only.
        ledger: of the session to resume, or a fresh one.
        heartbeat_s: how often to send a HEARTBEAT unless the server asks otherwise.
        registration_timeout_s: how long the server's answer may take.

    Attributes:
        heard_us_at: the server has heard from us at this time or later, which its answer proves; None: not yet.
    """

    def __init__(
        self,
        stamps: Stamps,
        client_id: str,
        client_type: ClientType,
        *,
        target_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        offer: Offer | None = None,
        ledger: Ledger | None = None,
        heartbeat_s: float = 30.0,
        registration_timeout_s: float = 30.0,
    ) -> None:
        super().__init__(stamps)
        self.client_id = client_id
        self.client_type = client_type
        self.target_id = target_id
        self.state = ClientState.NEW
        self._metadata = dict(metadata or {})
        self._offer = offer
        self._candidate = ledger
        self.heard_us_at: float | None = None
        self._asked_at: deque[tuple[float, int]] = deque()  # when, and how far we had sent
        self._heartbeat_s = heartbeat_s
        self._registration_timeout_s = registration_timeout_s

    def start(self, now: float) -> None:
        """Send REGISTER; the first thing on a connection."""
        metadata = dict(self._metadata)
        if self._offer is not None:
            metadata[EXTENSION] = self._offer.to_wire()
        message = self._message(
            ClientMessageType.REGISTER, TaskStatus.OK, target_id=self.target_id, metadata=metadata or None
        )
        self._put(message.to_json())
        self.state = ClientState.REGISTERING
        self._asked_at.append((now, 0))
        self._set_deadline("registration", now + self._registration_timeout_s)

    def receive(self, frame: Frame, now: float) -> list[OwnEventT | ClientEvent]:
        """Take one frame in; what makes no sense is reported, never answered."""
        if self.closing is not None:
            return []
        if isinstance(frame, bytes):
            return self._binary(frame)
        try:
            message = ServerMessage.from_json(frame)
        except MalformedMessage as error:
            if self.state is ClientState.REGISTERING:
                return self._refused(str(error), PROTOCOL_ERROR)
            return [ServerReported(str(error))]
        if self.state is ClientState.REGISTERING:
            return self._answered(message, now)
        self._set_deadline("silence", now + 3 * self._heartbeat_s)
        note = self._read_note(message)
        if note is None:
            return []
        if message.type is ServerMessageType.HEARTBEAT and message.session_id is None and not note.quiet:
            self._heard_us()
        if note.probe is not None:
            self._send(self._heartbeat(), Note(alive=note.probe, quiet=True))
        events = self._noted(note)
        events.extend(self._meant(message, note))
        if self._owes_acknowledgement():
            self._send(self._heartbeat(), QUIET)
        return events

    def _answered(self, message: ServerMessage, now: float) -> list[OwnEventT | ClientEvent]:
        if message.status is not TaskStatus.OK:
            refusal = message.type is ServerMessageType.ERROR
            text = message.error or "the server gave no reason"
            return self._refused(text, NORMAL if refusal else PROTOCOL_ERROR)
        self.state = ClientState.OPEN
        self._heard_us()
        self._deadlines.pop("registration", None)
        theirs = answered_offer(message.x_starloom)
        self.extended = self._offer is not None and theirs is not None
        self.agreed = self._offer.agreed(theirs) if self._offer is not None else frozenset()
        if theirs is not None and theirs.heartbeat_s is not None:
            self._heartbeat_s = theirs.heartbeat_s
        self._set_deadline("heartbeat", now + self._heartbeat_s)
        self._set_deadline("silence", now + 3 * self._heartbeat_s)
        resumed = self._take_up(theirs)
        return [Accepted(theirs, resumed)]

    def _heard_us(self) -> None:
        """Note that the server has answered our oldest question; what we had sent before it must have arrived."""
        if self._asked_at:
            self.heard_us_at, sent = self._asked_at.popleft()
            if self.ledger is not None and self.ledger.acknowledged < sent:
                self.close(PROTOCOL_ERROR, "a frame is missing")

    def _take_up(self, theirs: Offer | None) -> bool:
        """Begin or go on with the numbered session, when that was agreed."""
        if theirs is None or not self.can(Capability.RESUME) or self._candidate is None:
            return False
        if theirs.resumed and theirs.received is not None:
            self._candidate.acknowledge(theirs.received)
            self.ledger = self._candidate
            self._send_again(self.ledger, self._heartbeat)
            return True
        self.ledger = Ledger()
        return False

    def _refused(self, text: str, code: int) -> list[OwnEventT | ClientEvent]:
        """Close; not with a goodbye when the server may believe that it took us in, or it would give our work up."""
        self.close(code, "the registration was not confirmed")
        return [Refused(text)]

    def _expired(self, name: str, now: float) -> list[OwnEventT | ClientEvent]:
        if name == "registration":
            return self._refused("the server did not answer the registration in time", POLICY)
        if name == "heartbeat":
            self._set_deadline("heartbeat", now + self._heartbeat_s)
            self._asked_at.append((now, self.ledger.sent if self.ledger is not None else 0))
            self._send(self._heartbeat(periodic=True))
        elif name == "silence":
            self.close(POLICY, "no sign of life from the server in time")
        return []

    def _heartbeat(self, *, periodic: bool = False) -> ClientMessage:
        metadata = {"device_id": self.target_id} if periodic and self.target_id is not None else None
        return self._message(ClientMessageType.HEARTBEAT, TaskStatus.OK, metadata=metadata)

    def _message(self, kind: ClientMessageType, status: TaskStatus, **values: Json) -> ClientMessage:
        return ClientMessage(
            type=kind,
            status=status,
            client_type=self.client_type,
            client_id=self.client_id,
            timestamp=self.stamps.timestamp(),
            **values,
        )

    def _binary(self, body: bytes) -> list[OwnEventT | ClientEvent]:
        return [ServerReported(f"a binary frame of {len(body)} bytes that nobody agreed on")]

    def _noted(self, note: Note) -> list[OwnEventT | ClientEvent]:
        raise NotImplementedError

    def _meant(self, message: ServerMessage, note: Note) -> list[OwnEventT | ClientEvent]:
        raise NotImplementedError
