"""The device's end of one connection: takes COMMANDs, answers every one. Sans I/O; driven by the device process.

Source: wire specification, sections 5.1, 6.1, 6.3 and 14 (device); D5 and D25 are remedied by the process.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from starloom.aip.client import Accepted, ClientEvent, ClientProtocol, Refused, ServerReported
from starloom.aip.extension import NO_NOTE, Capability, Note, Offer
from starloom.aip.files import take_out
from starloom.aip.ledger import Ledger
from starloom.aip.messages import (
    ClientMessage,
    ClientMessageType,
    ClientType,
    Command,
    Result,
    ServerMessage,
    ServerMessageType,
    TaskStatus,
)
from starloom.aip.protocol import Stamps


class CommandAsked(Struct, frozen=True):
    """A COMMAND; answer it with `results`, whatever happens."""

    response_id: str | None
    session_id: str | None
    status: TaskStatus
    actions: tuple[Command, ...]
    agent_name: str | None = None
    process_name: str | None = None
    root_name: str | None = None
    task_name: str | None = None
    timeout_s: float | None = None
    once: bool = False


class AttemptsSettled(Struct, frozen=True):
    """Agreed: the hub has stored the results of these attempts."""

    attempt_ids: tuple[str, ...]


class CommandCancelAsked(Struct, frozen=True):
    """Agreed: stop the command with this `response_id`, then answer it."""

    response_id: str


class TaskPushed(Struct, frozen=True):
    """The server wants this device to ask for a task; answer with `ask_task`. `session_id` is the server's own."""

    request: str
    task_name: str | None
    session_id: str | None


class TaskEnded(Struct, frozen=True):
    """A task on this device is over; nothing to answer."""

    session_id: str | None
    status: TaskStatus


DeviceOwnEvent: TypeAlias = CommandAsked | CommandCancelAsked | AttemptsSettled | TaskPushed | TaskEnded
DeviceEvent: TypeAlias = DeviceOwnEvent | Accepted | Refused | ServerReported


class DeviceProtocol(ClientProtocol[DeviceOwnEvent]):
    """The device's end of one connection."""

    def __init__(
        self,
        stamps: Stamps,
        device_id: str,
        *,
        metadata: dict[str, Any],
        offer: Offer | None = None,
        ledger: Ledger | None = None,
        heartbeat_s: float = 30.0,
        registration_timeout_s: float = 30.0,
    ) -> None:
        super().__init__(
            stamps,
            device_id,
            ClientType.DEVICE,
            metadata=metadata,
            offer=offer,
            ledger=ledger,
            heartbeat_s=heartbeat_s,
            registration_timeout_s=registration_timeout_s,
        )

    def results(self, command: CommandAsked, results: Sequence[Result]) -> None:
        """Answer a COMMAND: as many results as actions, in their order; session, id and status are echoed."""
        sent, attachments = take_out(results) if self.can(Capability.FILES) else (list(results), [])
        message = ClientMessage(
            type=ClientMessageType.COMMAND_RESULTS,
            status=command.status,
            session_id=command.session_id,
            client_id=self.client_id,
            action_results=sent,
            timestamp=self.stamps.timestamp(),
            request_id=self.stamps.new_id(),
            prev_response_id=command.response_id,
        )
        note = Note(files=tuple(attachment.note() for attachment in attachments)) if attachments else NO_NOTE
        self._send(message, note, numbered=True, attachments=tuple(attachments))

    def ask_task(
        self, request: str, task_name: str | None = None, *, platform: str | None = None, session_id: str | None = None
    ) -> None:
        """Ask the server for a task on this device; the session id is null towards upstream's servers."""
        message = self._message(
            ClientMessageType.TASK,
            TaskStatus.CONTINUE,
            session_id=session_id,
            task_name=task_name or self.stamps.new_id(),
            request=request,
            request_id=self.stamps.new_id(),
            metadata={"platform": platform} if platform is not None else None,
        )
        self._send(message)

    def progress(self, response_id: str, text: str) -> None:
        """Report on a running command; nothing unless agreed."""
        if self.can(Capability.PROGRESS):
            self._send(self._heartbeat(), Note(progress=text, about=response_id, quiet=True))

    def _noted(self, note: Note) -> list[DeviceOwnEvent | ClientEvent]:
        events: list[DeviceOwnEvent | ClientEvent] = []
        if note.cancel is not None and self.can(Capability.CANCEL):
            events.append(CommandCancelAsked(note.cancel))
        if note.settled is not None:
            events.append(AttemptsSettled(note.settled))
        return events

    def _meant(self, message: ServerMessage, note: Note) -> list[DeviceOwnEvent | ClientEvent]:
        match message.type:
            case ServerMessageType.COMMAND:
                return [
                    CommandAsked(
                        message.response_id,
                        message.session_id,
                        message.status,
                        tuple(message.actions or ()),
                        message.agent_name,
                        message.process_name,
                        message.root_name,
                        message.task_name,
                        note.timeout_s,
                        bool(note.once),
                    )
                ]
            case ServerMessageType.TASK:
                return [TaskPushed(message.user_request or "", message.task_name, message.session_id)]
            case ServerMessageType.TASK_END:
                return [TaskEnded(message.session_id, message.status)]
            case ServerMessageType.ERROR:
                return [ServerReported(message.error or "an error without a text")]
            case ServerMessageType.HEARTBEAT:
                return []
            case ServerMessageType.DEVICE_INFO_REQUEST | ServerMessageType.DEVICE_INFO_RESPONSE:
                return [ServerReported(f"an unexpected {message.type} message")]
