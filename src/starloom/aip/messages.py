"""The wire's messages: upstream's two envelopes and their parts, in upstream's words, order and JSON.

Read and written by the protocol cores; values of them travel through fleet and device. Pure: no clock, no socket.
A frame is one JSON object with every field present and absent ones as `null`; a parser ignores fields it does not
know. That is where our own extension lives (`x_starloom`): it is written only when set, so towards a peer that did
not announce it a frame is upstream's, byte for byte but for ids and times.

A message is checked when it is read, not when it is made: what we say ourselves, the type checker has seen.

Source: upstream aip/messages.py, as written down in the wire specification, section 2.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, convert, json, to_builtins
from pydantic_core import from_json as read_as_pydantic_does

from starloom.blobs import Blob
from starloom.errors import WireError

EXTENSION = "x_starloom"
# Ours: the errors of a Result whose attempt was cut off; compare with them to know that its effect is in doubt.
CANCELLED = "Cancelled by the server."
IN_DOUBT = "An earlier process began this attempt and died; whether it took effect is not known."
_DEEPEST = 200  # brackets; what upstream's serializer reads, and so its peers can send
_EXTENSION = f',"{EXTENSION}":'.encode()

Json: TypeAlias = Any  # a JSON value: None, bool, int, float, str, list[Json] or dict[str, Json]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
NotNegative: TypeAlias = Annotated[int, Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
PartT = TypeVar("PartT", bound=Struct)


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


class Command(Struct, frozen=True):
    """One tool call. An empty `tool_name` means that there is nothing to do; `call_id` comes back in the Result."""

    tool_name: str
    parameters: dict[str, Any] | None = None
    tool_type: ToolType = "action"
    call_id: str | None = None


class Result(Struct, frozen=True):
    """How one Command ended. `result` is any JSON value, falsy ones included; `namespace` names who ran it."""

    status: ResultStatus
    error: str | None = None
    result: Any = None
    namespace: str | None = None
    call_id: str | None = None


class MCPToolInfo(Struct, frozen=True, kw_only=True):
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


class Envelope(Struct, frozen=True):
    """What both directions share: reading from and writing to one text frame."""

    def to_json(self, extension: Struct | None = None) -> str:
        """Return the frame's text: compact, every field, fixed order; the extension last and only when set."""
        text = _WRITER.encode(self)
        if extension is None:
            return text.decode()
        return (b"%b%b%b}" % (text[:-1], _EXTENSION, _WRITER.encode(extension))).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the message in a frame.

        Raises:
            MalformedMessage: not JSON, nested more than 200 deep, a missing or wrong field, or a type or status
                outside the closed sets.
        """
        try:
            if text.count("[") + text.count("{") > _DEEPEST:
                read_as_pydantic_does(text)  # for its limit of nesting: who handles a value must be able to walk it
            return _READERS[cls].decode(text)  # type: ignore[no-any-return]  # it makes this class
        except (ValueError, RecursionError) as error:  # the library's, and those of lone surrogates
            raise MalformedMessage(_code(error), str(error)) from error


class ClientMessage(Envelope, frozen=True):
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
    x_starloom: Raw | UnsetType = UNSET


class ServerMessage(Envelope, frozen=True):
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
    x_starloom: Raw | UnsetType = UNSET


def read(kind: type[PartT], value: Json) -> PartT:
    """Return the part of a message that a JSON value is.

    Raises:
        MalformedMessage: a missing or wrong field.
    """
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise MalformedMessage(_code(error), str(error)) from error


def plain(part: Struct) -> Json:
    """Return a part of a message as a JSON value."""
    return to_builtins(part, enc_hook=_foreign)


def _foreign(value: object) -> str:
    if isinstance(value, Blob):
        return value.data_url()
    raise TypeError(f"A {type(value).__name__} is no JSON value.")


def _code(error: Exception) -> str:
    """Return what was wrong with a frame, and where, without a word that its sender chose."""
    if not isinstance(error, ValidationError):
        return "json_invalid"
    text = str(error)
    found = _WHERE.search(text)
    where = found[1].lstrip(".") if found else ""
    missing = _MISSING.match(text)
    if missing:
        return f"missing at {f'{where}.{missing[1]}'.lstrip('.')}"
    kind = "enum" if text.startswith("Invalid enum") else "type" if text.startswith("Expected") else "value"
    return f"{kind} at {where}" if where else kind


_WHERE = re.compile(r" - at `\$([\w.\[\]]*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_WRITER = json.Encoder(enc_hook=_foreign)
_READERS: dict[type[Envelope], json.Decoder[Any]] = {
    kind: json.Decoder(kind) for kind in (ClientMessage, ServerMessage)
}
