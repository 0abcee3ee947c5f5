"""The wire's messages: upstream's two envelopes and their parts, in upstream's words, order and JSON.

Read and written by the protocol cores; values of them travel through fleet and device. Pure: no clock, no socket.
A frame is one JSON object with every field present and absent ones as `null`; a parser ignores fields it does not
know. That is where our own extension lives (`x_starloom`): it is written only when set, so towards a peer that did
not announce it a frame is upstream's, byte for byte but for ids and times.

Source: upstream aip/messages.py, as written down in the wire specification, section 2.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from starloom.errors import WireError

EXTENSION = "x_starloom"
# Ours: the errors of a Result whose attempt was cut off; compare with them to know that its effect is in doubt.
CANCELLED = "Cancelled by the server."
IN_DOUBT = "An earlier process began this attempt and died; whether it took effect is not known."
_EXTENSION = f',"{EXTENSION}":'.encode()
_NO_EXTENSION = _EXTENSION + b"null}"

Json: TypeAlias = Any  # a JSON value: None, bool, int, float, str, list[Json] or dict[str, Json]


class MalformedMessage(WireError):
    """A frame is not a message. `code` is short and stable; what exactly was wrong stays in `detail`, for logs only."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"The frame is not a valid message: {code}.")
        self.code = code
        self.detail = detail


class ClientType(StrEnum):
    """What a client is."""

    DEVICE = "device"
    CONSTELLATION = "constellation"


class TaskStatus(StrEnum):
    """The status every frame carries."""

    CONTINUE = "continue"
    COMPLETED = "completed"
    FAILED = "failed"
    OK = "ok"
    ERROR = "error"


class ResultStatus(StrEnum):
    """How one command ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    SKIPPED = "skipped"
    NONE = "none"


class ClientMessageType(StrEnum):
    """What a client may send. A closed set: another value refuses the frame."""

    TASK = "task"
    HEARTBEAT = "heartbeat"
    COMMAND_RESULTS = "command_results"
    ERROR = "error"
    REGISTER = "register"
    TASK_END = "task_end"
    DEVICE_INFO_REQUEST = "device_info_request"
    DEVICE_INFO_RESPONSE = "device_info_response"


class ServerMessageType(StrEnum):
    """What a server may send. A closed set: another value refuses the frame."""

    TASK = "task"
    HEARTBEAT = "heartbeat"
    TASK_END = "task_end"
    COMMAND = "command"
    ERROR = "error"
    DEVICE_INFO_REQUEST = "device_info_request"
    DEVICE_INFO_RESPONSE = "device_info_response"


ToolType = Literal["action", "data_collection"]


class WireModel(BaseModel):
    """What all parts share: frozen, and deaf to fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Command(WireModel):
    """One tool call. An empty `tool_name` means that there is nothing to do; `call_id` comes back in the Result."""

    tool_name: str
    parameters: dict[str, Any] | None = None
    tool_type: ToolType = "action"
    call_id: str | None = None


class Result(WireModel):
    """How one Command ended. `result` is any JSON value, falsy ones included; `namespace` names who ran it."""

    status: ResultStatus
    error: str | None = None
    result: Any = None
    namespace: str | None = None
    call_id: str | None = None


class MCPToolInfo(WireModel):
    """One element of what `list_tools` answers. `tool_key` is `<tool_type>::<tool_name>`."""

    tool_key: str
    tool_name: str
    title: str | None = None
    namespace: str
    tool_type: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class Envelope(WireModel):
    """What both directions share: reading from and writing to one text frame."""

    def to_json(self, extension: Mapping[str, Any] | None = None) -> str:
        """Return the frame's text: compact, every field, fixed order; the extension last and only when set.

        Args:
            extension: written in place of the message's own, which saves a copy of the message.
        """
        written = self.__pydantic_serializer__.to_json(self)
        if not written.endswith(_NO_EXTENSION):
            return written.decode()
        written = written[: -len(_NO_EXTENSION)]
        return (b"%b%b%b}" % (written, _EXTENSION, to_json(extension)) if extension else written + b"}").decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the message in a frame.

        Raises:
            MalformedMessage: not JSON, a missing or wrong field, or a type or status outside the closed sets.
        """
        try:
            return cls.__pydantic_validator__.validate_json(text)  # type: ignore[no-any-return]  # it makes this class
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            code = f"{first['type']} at {where}" if where else str(first["type"])
            raise MalformedMessage(code, str(error)) from error


class ClientMessage(Envelope):
    """Client to server."""

    type: ClientMessageType
    status: TaskStatus
    client_type: ClientType = ClientType.DEVICE
    session_id: str | None = None
    task_name: str | None = None
    client_id: str | None = None
    target_id: str | None = None
    request: str | None = None
    action_results: list[Result] | None = None
    timestamp: str | None = None
    request_id: str | None = None
    prev_response_id: str | None = None
    error: str | None = None
    metadata: dict[str, Any] | None = None
    x_starloom: dict[str, Any] | None = None


class ServerMessage(Envelope):
    """Server to client."""

    type: ServerMessageType
    status: TaskStatus
    user_request: str | None = None
    agent_name: str | None = None
    process_name: str | None = None
    root_name: str | None = None
    actions: list[Command] | None = None
    messages: list[str] | None = None
    error: str | None = None
    session_id: str | None = None
    task_name: str | None = None
    timestamp: str | None = None
    response_id: str | None = None
    result: Any = None
    x_starloom: dict[str, Any] | None = None
