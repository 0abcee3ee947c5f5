"""The constellation client's end of one connection: gives tasks to one device behind a server. Sans I/O.

Driven by the fleet's outposts. It matches answers to what waits, so that an ERROR of upstream's server, which names
nothing, still ends the one request it can be about (D7), and a foreign TASK_END ends nothing.

Source: wire specification, sections 5.2, 5.5, 6.2, 6.4 and 14 (constellation); D4 and D16 are remedied here.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from starloom.aip.client import Accepted, ClientEvent, ClientProtocol, Refused, ServerReported
from starloom.aip.extension import Capability, Note, Offer
from starloom.aip.ledger import Ledger
from starloom.aip.messages import ClientMessageType, ClientType, ServerMessage, ServerMessageType, TaskStatus
from starloom.aip.protocol import Stamps

CAPABILITIES = ("task_distribution", "session_management", "device_coordination")


class TaskAcknowledged(Struct, frozen=True):
    """The server took the task and began."""

    session_id: str


class TaskRefused(Struct, frozen=True):
    """The server refused the task; it never began."""

    session_id: str
    text: str


class TaskEnded(Struct, frozen=True):
    """The task is over. Upstream's `completed` says only that: look at `result` (D9)."""

    session_id: str
    status: TaskStatus
    result: Any
    error: str | None


class DeviceInfoArrived(Struct, frozen=True):
    """The device's `system_info`, or an object with `error` when the server does not know it."""

    request_id: str
    result: Any


class DeviceInfoRefused(Struct, frozen=True):
    """The server does not tell us about this device."""

    request_id: str
    text: str


class PresenceChanged(Struct, frozen=True):
    """Agreed: the device left or came back."""

    device_id: str
    online: bool


ConstellationOwnEvent: TypeAlias = (
    TaskAcknowledged | TaskRefused | TaskEnded | DeviceInfoArrived | DeviceInfoRefused | PresenceChanged
)
ConstellationEvent: TypeAlias = ConstellationOwnEvent | Accepted | Refused | ServerReported


class ConstellationProtocol(ClientProtocol[ConstellationOwnEvent]):
    """The constellation client's end of one connection, for one device.

    `tasks`: those of the session to resume, with whether they were acknowledged; one object for all its connections.
    """

    def __init__(
        self,
        stamps: Stamps,
        name: str,
        device_id: str,
        *,
        offer: Offer | None = None,
        ledger: Ledger | None = None,
        tasks: dict[str, bool] | None = None,
        heartbeat_s: float = 30.0,
        registration_timeout_s: float = 30.0,
    ) -> None:
        metadata: dict[str, Any] = {
            "type": "constellation_client",
            "task_name": name,
            "targeted_device_id": device_id,
            "capabilities": list(CAPABILITIES),
            "version": "2.0",
        }
        super().__init__(
            stamps,
            f"{name}@{device_id}",
            ClientType.CONSTELLATION,
            target_id=device_id,
            metadata=metadata,
            offer=offer,
            ledger=ledger,
            heartbeat_s=heartbeat_s,
            registration_timeout_s=registration_timeout_s,
        )
        self.name = name
        self._tasks = tasks if tasks is not None else {}  # session id: acknowledged
        self._questions: set[str] = set()

    def ask_task(self, request: str, *, task_id: str) -> str:
        """Send a TASK and return its session id, which no one can guess and no other attempt shares (D16)."""
        session_id = f"{self.name}@{task_id}#{self.stamps.new_id()}"
        message = self._message(
            ClientMessageType.TASK,
            TaskStatus.CONTINUE,
            session_id=session_id,
            task_name=f"galaxy/{self.name}/{task_id}",
            target_id=self.target_id,
            request=request,
        )
        self._tasks[session_id] = False
        self._send(message, numbered=True)
        return session_id

    def cancel_task(self, session_id: str) -> bool:
        """Ask the server to stop a task. False: not agreed; closing the connection is the only way (D8)."""
        if not self.can(Capability.CANCEL):
            return False
        self._send(self._heartbeat(), Note(cancel=session_id, quiet=True), numbered=True)
        return True

    def ask_device_info(self, request_id: str) -> None:
        """Send a DEVICE_INFO_REQUEST about our device."""
        self._questions.add(request_id)
        self._send(
            self._message(
                ClientMessageType.DEVICE_INFO_REQUEST,
                TaskStatus.OK,
                target_id=self.target_id,
                request_id=request_id,
            )
        )

    def forget(self, waiting_id: str) -> None:
        """Expect no answer to a task or a question any more; one that still comes is reported only."""
        self._tasks.pop(waiting_id, None)
        self._questions.discard(waiting_id)

    def _noted(self, note: Note) -> list[ConstellationOwnEvent | ClientEvent]:
        if note.online is not None and note.about is not None and self.can(Capability.PRESENCE):
            return [PresenceChanged(note.about, note.online)]
        return []

    def _meant(self, message: ServerMessage, note: Note) -> list[ConstellationOwnEvent | ClientEvent]:
        match message.type:
            case ServerMessageType.HEARTBEAT:
                return self._acknowledged(message.session_id)
            case ServerMessageType.TASK_END:
                return self._ended(message)
            case ServerMessageType.DEVICE_INFO_RESPONSE:
                if message.response_id in self._questions:
                    self._questions.discard(message.response_id)
                    return [DeviceInfoArrived(message.response_id, message.result)]
                return [ServerReported("device information that nobody asked for")]
            case ServerMessageType.ERROR:
                return self._failed(message)
            case ServerMessageType.COMMAND | ServerMessageType.TASK | ServerMessageType.DEVICE_INFO_REQUEST:
                return [ServerReported(f"an unexpected {message.type} message")]

    def _acknowledged(self, session_id: str | None) -> list[ConstellationOwnEvent | ClientEvent]:
        if session_id is None or self._tasks.get(session_id) is not False:
            return []
        self._tasks[session_id] = True
        return [TaskAcknowledged(session_id)]

    def _ended(self, message: ServerMessage) -> list[ConstellationOwnEvent | ClientEvent]:
        if message.session_id is None or self._tasks.pop(message.session_id, None) is None:
            return [ServerReported("the end of a task that does not run here")]
        return [TaskEnded(message.session_id, message.status, message.result, message.error)]

    def _failed(self, message: ServerMessage) -> list[ConstellationOwnEvent | ClientEvent]:
        text = message.error or "an error without a text"
        if message.response_id in self._questions:
            self._questions.discard(message.response_id)
            return [DeviceInfoRefused(message.response_id, text)]
        unacknowledged = [session_id for session_id, begun in self._tasks.items() if not begun]
        if message.session_id is not None:
            refused = [session_id for session_id in unacknowledged if session_id == message.session_id]
        else:
            refused = unacknowledged if len(unacknowledged) == 1 and not self._questions else []
        if not refused:
            return [ServerReported(text)]
        del self._tasks[refused[0]]
        return [TaskRefused(refused[0], text)]
