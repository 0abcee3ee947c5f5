"""Our extension of the wire: what two Starloom ends may agree on, and the notes they then put on frames.

Used by the protocol cores only. A client announces in `metadata.x_starloom` of its REGISTER, the server in one extra
field of the confirming HEARTBEAT; what both named is agreed, anything else stays off. Notes ride on upstream's closed
message types, a HEARTBEAT when there is nothing else to carry them: no new type or status ever reaches the wire, so
even a frame that went astray could not be refused for it.

    capability   what an agreed pair may do
    cancel       stop a command (server to device) or a task (constellation to server)
    resume       number frames, keep unacknowledged ones, and go on after a drop without repeating one
    parallel     have several commands in flight on one device, up to the device's own limit
    progress     report on a running command
    presence     tell a constellation that its device left or came back
    errors       name the code and the id of what failed in ERROR frames
    attempts     keep a record of attempts on disk: one that is repeated by its id is answered, not acted on again
    leases       act only while the server's lease lasts; it is renewed by heartbeats, and nobody else gets the place
    files        send images of results in binary frames, with checksums (aip.files)

Source: wire specification, section 14.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Raw, Struct, UnsetType, field, json

from starloom.aip.messages import EXTENSION, Json, MalformedMessage, NotNegative, Positive, Seconds, plain, read

VERSION = 1


class Capability(StrEnum):
    """What can be agreed on."""

    CANCEL = "cancel"
    RESUME = "resume"
    PARALLEL = "parallel"
    PROGRESS = "progress"
    PRESENCE = "presence"
    ERRORS = "errors"
    ATTEMPTS = "attempts"
    LEASES = "leases"
    FILES = "files"


ALL_CAPABILITIES: frozenset[Capability] = frozenset(Capability)
_BY_NAME: dict[str, Capability] = {capability.value: capability for capability in Capability}


class Offer(Struct, frozen=True, omit_defaults=True):
    """What one end announces. Fields a role does not need keep their defaults and are not written.

    Attributes:
        caps: names of capabilities; unknown ones are ignored.
        device_type: what the device is, where upstream's three platforms are too coarse.
        max_in_flight: how many commands the device takes at once.
        token: names a session that can be resumed; a secret between the two ends.
        received: the highest frame number of the other end that this end has processed.
        resumed: server only: the session of the client's token goes on.
        credential: server only: the device's own token, in place of the invitation it came with.
        instance: device only: names its record of attempts, which one process at a time can hold.
        lease_s: server only: how long the device may act after it last showed that it lives.
        heartbeat_s: server only: how often the client should send a HEARTBEAT.
        tools: device only: the `digest_of` what it lists as its tools; a server that knows that list need not ask.
    """

    v: Positive = field(default_factory=lambda: VERSION)  # made anew, so it is no default that is left out
    caps: tuple[str, ...] = ()
    device_type: str | None = None
    max_in_flight: Annotated[int, Meta(ge=1, le=1024)] | None = None
    token: Annotated[str, Meta(max_length=256)] | None = None
    received: NotNegative | None = None
    resumed: bool | None = None
    credential: Annotated[str, Meta(max_length=512)] | None = None
    instance: Annotated[str, Meta(max_length=64)] | None = None
    lease_s: Seconds | None = None
    heartbeat_s: Seconds | None = None
    tools: Annotated[str, Meta(max_length=64)] | None = None

    def __repr__(self) -> str:
        """Leave secrets out."""
        return f"Offer(caps={self.caps}, resumed={self.resumed}, instance={self.instance!r})"

    def to_wire(self) -> dict[str, Json]:
        """Return the JSON object to announce."""
        return plain(self)  # type: ignore[no-any-return]  # a struct is an object

    def agreed(self, theirs: "Offer | None") -> frozenset[Capability]:
        """Return what both ends named; nothing when the other end announced nothing."""
        if theirs is None:
            return frozenset()
        common = set(self.caps) & set(theirs.caps)
        return frozenset(_BY_NAME[name] for name in common if name in _BY_NAME)


class Note(Struct, frozen=True, omit_defaults=True):
    """What an agreed pair writes into `x_starloom` of any frame. Absent fields are not written.

    Attributes:
        seq: this frame's number in its direction, from 1; only frames that must not get lost have one.
        ack: the highest number processed in the other direction.
        quiet: a HEARTBEAT that only carries notes and wants no answer.
        cancel: stop the command with this `response_id`, or the task with this `session_id`.
        progress: a message about the command with the `response_id` in `about`.
        about: what `progress` or `code` is about.
        once: on a COMMAND: its call ids are attempts; a device that knows one does not act again.
        settled: attempts whose results the hub has stored; the device may forget them.
        timeout_s: on a COMMAND: how long each of its tools may take.
        code: a short stable name of the failure in an ERROR frame.
        probe: prove that you are alive: send this back as `alive`.
        alive: the answer to a probe.
        online: presence: the device named in `about` is here (true) or gone (false).
        files: what came in binary frames before this message (aip.files).
    """

    seq: Positive | None = None
    ack: NotNegative | None = None
    quiet: bool | None = None
    cancel: str | None = None
    progress: str | None = None
    about: str | None = None
    once: bool | None = None
    settled: tuple[str, ...] | None = None
    timeout_s: Seconds | None = None
    code: str | None = None
    probe: str | None = None
    alive: str | None = None
    online: bool | None = None
    files: tuple[dict[str, Any], ...] | None = None


NO_NOTE = Note()
_NOTES = json.Decoder(Note)
_OFFERS = json.Decoder(Offer)


def digest_of(listed: Json) -> str | None:
    """Return the digest of an answer to `list_tools`: equal ones have the same, and no others can be found to have it.

    None: it cannot be written as JSON, so it has none.
    """
    try:
        return sha256(json.encode(listed, order="deterministic")).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return None


def read_offer(metadata: dict[str, Json] | None) -> Offer | None:
    """Return what a REGISTER's metadata announces; None when nothing usable is there (then we speak upstream's)."""
    try:
        return read(Offer, (metadata or {}).get(EXTENSION))
    except MalformedMessage:
        return None


def answered_offer(written: Raw | UnsetType) -> Offer | None:
    """Return what the server announces in the frame that confirms a registration; None as above."""
    try:
        return _OFFERS.decode(written) if isinstance(written, Raw) else None
    except (DecodeError, RecursionError, UnicodeError):
        return None


def read_note(written: Raw | UnsetType) -> Note:
    """Return a frame's notes; empty when there are none or they make no sense."""
    try:
        return _NOTES.decode(written) if isinstance(written, Raw) else NO_NOTE
    except (DecodeError, RecursionError, UnicodeError):
        return NO_NOTE
