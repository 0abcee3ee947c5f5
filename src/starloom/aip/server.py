"""The server's end of one connection: a device or a constellation client that dialled us. Sans I/O.

Driven by the fleet. The core keeps the order of things, the roles and the ids; whether a client may register, and
what a task does, the fleet decides on the events it is handed.

    awaiting ── REGISTER ──▶ asked ── accept() ──▶ open ── close() ──▶ closing
       │                       └── refuse() ─▶ closing
       └── anything else, or nothing in time: ERROR, closing

Source: wire specification, sections 4 to 6; D2, D3, D7, D23, D32 and D33 are remedied here.
"""

from collections.abc import Sequence
from enum import Enum, auto

from msgspec.structs import replace

from starloom.aip.commands import CommandBook
from starloom.aip.extension import NO_NOTE, Capability, Note, Offer, read_offer
from starloom.aip.files import Assembly
from starloom.aip.ledger import Ledger
from starloom.aip.messages import (
    ClientMessage,
    ClientMessageType,
    ClientType,
    Command,
    Json,
    MalformedMessage,
    ServerMessage,
    ServerMessageType,
    TaskStatus,
)
from starloom.aip.protocol import POLICY, PROTOCOL_ERROR, QUIET, TOO_BIG, UNSUPPORTED, Endpoint, Frame, Stamps
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

ERROR_TEXT_LIMIT = 300


class ServerState(Enum):
    """Where a connection stands."""

    AWAITING = auto()
    ASKED = auto()
    OPEN = auto()


class ServerProtocol(Endpoint[ServerEvent, ServerMessage]):
    """The server's end of one connection.

    Args:
        stamps: ids and time stamps for frames.
        now: the clock's monotonic seconds.
        registration_timeout_s: how long the first frame may take.
        silence_timeout_s: how long a registered client may say nothing.
        probe_timeout_s: how long a probed client may take to show that it is alive.
    """

    def __init__(
        self,
        stamps: Stamps,
        now: float,
        *,
        registration_timeout_s: float = 30.0,
        silence_timeout_s: float = 300.0,
        probe_timeout_s: float = 5.0,
    ) -> None:
        super().__init__(stamps)
        self.state = ServerState.AWAITING
        self.client_id = ""
        self.client_type = ClientType.DEVICE
        self.offer: Offer | None = None
        self.book = CommandBook()
        self.last_heard = now
        self._assembly = Assembly()
        self._silence_timeout_s = silence_timeout_s
        self._probe_timeout_s = probe_timeout_s
        self._set_deadline("registration", now + registration_timeout_s)

    # What the fleet says

    def accept(
        self, now: float, *, offer: Offer | None = None, ledger: Ledger | None = None, book: CommandBook | None = None
    ) -> None:
        """Confirm the registration.

        Args:
            now: the clock's monotonic seconds.
            offer: our announcement, when the client announced itself; None towards upstream's clients.
            ledger: the session's, when resuming is agreed; its unacknowledged frames are sent again.
            book: the commands of the session that still wait; None: a new session.
        """
        self.state = ServerState.OPEN
        self._deadlines.pop("registration", None)
        theirs = self.offer
        if offer is not None and theirs is not None:
            self.agreed, self.extended = offer.agreed(theirs), True
            if offer.heartbeat_s is not None:
                self._silence_timeout_s = min(self._silence_timeout_s, 3 * offer.heartbeat_s)
        self._put(self._heartbeat().to_json(offer if self.extended else None))
        self.book = book if book is not None else self.book
        self._heard(now)
        if ledger is not None and self.can(Capability.RESUME):
            self.ledger = ledger
            if offer is not None and offer.resumed and theirs is not None:
                ledger.acknowledge(theirs.received or 0)
            self._send_again(ledger, self._heartbeat)

    def refuse(self, text: str, *, code: str = "refused") -> None:
        """Refuse the registration and close."""
        self.error(text, code=code)
        self.close()

    def command(
        self,
        commands: Sequence[Command],
        *,
        session_id: str,
        task_name: str | None = None,
        agent_name: str | None = None,
        process_name: str | None = "",
        root_name: str | None = "",
        timeout_s: float | None = None,
        once: bool = False,
    ) -> str:
        """Send a COMMAND and return its `response_id`; commands without a `call_id` get one.

        A limit for each tool, and that the call ids are attempts (`once`), only a device that announced itself is told.
        """
        actions = [
            command if command.call_id else replace(command, call_id=self.stamps.new_id()) for command in commands
        ]
        response_id = self.stamps.new_id()
        message = ServerMessage(
            type=ServerMessageType.COMMAND,
            status=TaskStatus.CONTINUE,
            actions=actions,
            session_id=session_id,
            task_name=task_name,
            agent_name=agent_name,
            process_name=process_name,
            root_name=root_name,
            timestamp=self.stamps.timestamp(),
            response_id=response_id,
        )
        self.book.add(response_id, session_id, [action.call_id for action in actions])
        note = Note(timeout_s=timeout_s, once=once or None) if self.extended else NO_NOTE
        self._send(message, note, numbered=True)
        return response_id

    def cancel(self, response_id: str) -> bool:
        """Ask the device to stop a command; it still answers. False: not agreed, or too late: nothing was sent."""
        if self.closing is not None or not self.can(Capability.CANCEL):
            return False
        self._send(self._heartbeat(), Note(cancel=response_id, quiet=True), numbered=True)
        return True

    def settled(self, attempt_ids: Sequence[str]) -> None:
        """Tell a device that announced itself that the results of these attempts are stored."""
        if self.extended:
            self._send(self._heartbeat(), Note(settled=tuple(attempt_ids), quiet=True), numbered=True)

    def push_task(self, request: str, *, session_id: str, task_name: str) -> None:
        """Send a TASK to a device, which answers with a TASK of its own."""
        self._send(
            self._message(
                ServerMessageType.TASK,
                TaskStatus.CONTINUE,
                user_request=request,
                session_id=session_id,
                task_name=task_name,
            )
        )

    def acknowledge_task(self, session_id: str) -> None:
        """Tell the requester that its task has begun under this session id."""
        self._send(self._heartbeat(session_id=session_id), numbered=True)

    def end_task(
        self, session_id: str, status: TaskStatus, *, result: Json = None, error: str | None = None, response_id: str
    ) -> None:
        """Send a TASK_END; requester and device get the same `response_id`."""
        said = {"session_id": session_id, "result": result, "error": error, "response_id": response_id}
        self._send(self._message(ServerMessageType.TASK_END, status, **said), numbered=True)

    def device_info(self, request_id: str | None, result: Json) -> None:
        """Answer a DEVICE_INFO_REQUEST."""
        answered = request_id or self.stamps.new_id()
        self._send(
            self._message(ServerMessageType.DEVICE_INFO_RESPONSE, TaskStatus.OK, result=result, response_id=answered)
        )

    def error(self, text: str, *, code: str, about: ClientMessage | None = None) -> None:
        """Send an ERROR that names what failed: the frame's session, and its `request_id` as `response_id`."""
        session_id, short = about.session_id if about is not None else None, text[:ERROR_TEXT_LIMIT]
        message = self._message(ServerMessageType.ERROR, TaskStatus.ERROR, error=short, session_id=session_id)
        if about is not None and about.request_id:
            message = replace(message, response_id=about.request_id)
        note = NO_NOTE
        if self.can(Capability.ERRORS):
            about_id = (about.session_id or about.request_id) if about is not None else None
            note = Note(code=code, about=about_id)
        self._send(message, note)

    def presence(self, device_id: str, online: bool) -> None:
        """Tell a constellation client that a device left or came back; nothing unless agreed."""
        if self.can(Capability.PRESENCE):
            self._send(self._heartbeat(), Note(about=device_id, online=online, quiet=True), numbered=True)

    @property
    def can_be_probed(self) -> bool:
        """Tell whether silence after a probe means anything.

        Upstream's constellation client answers nothing, and upstream's device nothing while it works.
        """
        return self.extended or (self.client_type is ClientType.DEVICE and len(self.book) == 0)

    def probe(self, now: float) -> None:
        """Make the client show that it is alive: a note when it announced itself, else an empty COMMAND.

        Ours: upstream's device answers nothing but commands, and an empty one costs it nothing.
        """
        self._set_deadline("probe", now + self._probe_timeout_s)
        if self.extended:
            self._send(self._heartbeat(), Note(probe=self.stamps.new_id(), quiet=True))
        elif self.client_type is ClientType.DEVICE:
            message = self._message(
                ServerMessageType.COMMAND,
                TaskStatus.CONTINUE,
                actions=[],
                process_name="",
                root_name="",
                session_id=self.stamps.new_id(),
            )
            self._send(message)

    # What the client says

    def receive(self, frame: Frame, now: float) -> list[ServerEvent]:
        """Take one frame in; a frame that breaks the rules is answered with an ERROR and means nothing."""
        if self.closing is not None:
            return []
        events: list[ServerEvent] = []
        if self.state is not ServerState.AWAITING and self._heard(now):
            events.append(ProbeAnswered())
        if isinstance(frame, bytes):
            return [*events, *self._binary(frame)]
        try:
            message = ClientMessage.from_json(frame)
        except MalformedMessage as error:
            self.error(str(error), code="malformed")
            if self.state is ServerState.AWAITING:
                self.close(PROTOCOL_ERROR, "the first frame must be a REGISTER")
            return events
        match self.state:
            case ServerState.OPEN:
                return events + self._registered(message)
            case ServerState.AWAITING:
                return self._first(message)
            case ServerState.ASKED:
                return self._too_early(message)

    def _first(self, message: ClientMessage) -> list[ServerEvent]:
        if message.type is not ClientMessageType.REGISTER:
            self.error("The first message must be a register message", code="not_registered", about=message)
            self.close(POLICY, "the first frame must be a REGISTER")
            return []
        if not message.client_id:
            self.error("A register message requires client_id", code="no_client_id")
            self.close(POLICY, "a REGISTER needs a client_id")
            return []
        self.state = ServerState.ASKED
        self.client_id = message.client_id
        self.client_type = message.client_type
        self.offer = read_offer(message.metadata)
        return [RegistrationAsked(message, message.client_id, self.offer)]

    def _too_early(self, message: ClientMessage) -> list[ServerEvent]:
        self.error("The registration is not confirmed yet", code="not_registered", about=message)
        self.close(POLICY, "a frame came before the registration was confirmed")
        return []

    def _registered(self, message: ClientMessage) -> list[ServerEvent]:
        wrong = self._identity_fault(message)
        if wrong is not None:
            self.error(wrong, code="identity", about=message)
            return []
        note = self._read_note(message)
        if note is None:
            return []
        events = self._noted(note)
        events.extend(self._meant(message, note))
        if self._owes_acknowledgement():
            self._send(self._heartbeat(), QUIET)
        return events

    def _identity_fault(self, message: ClientMessage) -> str | None:
        """Return what is wrong with a frame's claim of who sends it.

        A HEARTBEAT's `client_type` is not looked at: upstream's constellation client sends a wrong one (D4).
        """
        if message.client_id is not None and message.client_id != self.client_id:
            return "client_id does not match the registered connection"
        if message.type is not ClientMessageType.HEARTBEAT and message.client_type is not self.client_type:
            return "client_type does not match the registered connection"
        return None

    def _noted(self, note: Note) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        if note.cancel is not None and self.can(Capability.CANCEL) and self.client_type is ClientType.CONSTELLATION:
            events.append(TaskCancelAsked(note.cancel))
        if note.progress is not None and note.about is not None and self.can(Capability.PROGRESS):
            events.append(Progressed(note.about, note.progress))
        if note.probe is not None:
            self._send(self._heartbeat(), Note(alive=note.probe, quiet=True))
        return events

    def _meant(self, message: ClientMessage, note: Note) -> list[ServerEvent]:
        match message.type:
            case ClientMessageType.HEARTBEAT:
                if not note.quiet:
                    self._see_what_arrived()
                    self._send(self._heartbeat())
                return []
            case ClientMessageType.COMMAND_RESULTS:
                return self._answered(message, note)
            case ClientMessageType.TASK:
                return [TaskAsked(message)]
            case ClientMessageType.DEVICE_INFO_REQUEST:
                if self.client_type is ClientType.CONSTELLATION:
                    return [DeviceInfoAsked(message)]
                text = "DEVICE_INFO_REQUEST is permitted only for constellation clients"
                self.error(text, code="role", about=message)
                return []
            case ClientMessageType.ERROR:
                return [ClientReported(message.error or "an error without a text")]
            case ClientMessageType.DEVICE_INFO_RESPONSE:
                return [ClientReported("pushed device information")]
            case ClientMessageType.REGISTER | ClientMessageType.TASK_END:
                text = f"Unknown message type: ClientMessageType.{message.type.name}"
                self.error(text, code="unexpected_type", about=message)
                return []

    def _answered(self, message: ClientMessage, note: Note) -> list[ServerEvent]:
        if note.files and self.can(Capability.FILES):
            whole = self._assembly.put_back(message.action_results or [], note.files)
            message = replace(message, action_results=whole)
        settled = self.book.settle(message) if self.client_type is ClientType.DEVICE else None
        return [ResultsArrived(*settled)] if settled else [StrayResults(message.prev_response_id)]

    def _binary(self, body: bytes) -> list[ServerEvent]:
        if self.state is ServerState.OPEN and self.can(Capability.FILES):
            if not self._assembly.add(body):
                self.close(TOO_BIG, "a binary frame is no part of a file, or too much waits")
            return []
        self.error("Binary frames are not agreed on", code="binary")
        if self.state is ServerState.AWAITING:
            self.close(UNSUPPORTED, "the first frame must be a REGISTER")
        return []

    # Time

    def _heard(self, now: float) -> bool:
        """Note a sign of life; True when someone had asked for one."""
        self.last_heard = now
        if self.state is ServerState.OPEN:
            self._set_deadline("silence", now + self._silence_timeout_s)
        return self._deadlines.pop("probe", None) is not None

    def _expired(self, name: str, now: float) -> list[ServerEvent]:
        if name == "probe":
            return [ProbeFailed()]
        if name == "registration":
            self.error("No register message came in time", code="registration_timeout")
            self.close(POLICY, "no REGISTER in time")
        else:
            self.close(POLICY, "no sign of life in time")
        return []

    # Frames

    def _heartbeat(self, session_id: str | None = None) -> ServerMessage:
        return self._message(ServerMessageType.HEARTBEAT, TaskStatus.OK, session_id=session_id)

    def _message(self, kind: ServerMessageType, status: TaskStatus, **values: Json) -> ServerMessage:
        values.setdefault("response_id", self.stamps.new_id())
        return ServerMessage(type=kind, status=status, timestamp=self.stamps.timestamp(), **values)
