"""The frames of every day, made from plain values: COMMAND, its results, and HEARTBEAT of either side.

Used by the protocol cores. A message model is built, checked and written in three steps, which a hub that drives a
thousand devices can tell; what we say ourselves needs no check. A draft has its model's fields in their order, and the
tests hold that it is written as the model would be, byte for byte.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pydantic_core import to_json

from starloom.aip.messages import EXTENSION, ClientMessage, ClientType, Command, Json, Result, ServerMessage, TaskStatus

Draft: TypeAlias = dict[str, Json]

_SERVER: Draft = dict.fromkeys(name for name in ServerMessage.model_fields if name != EXTENSION)
_CLIENT: Draft = dict.fromkeys(name for name in ClientMessage.model_fields if name != EXTENSION)
_CONTINUE, _OK = TaskStatus.CONTINUE.value, TaskStatus.OK.value


def command(
    actions: Sequence[Draft],
    *,
    session_id: str,
    task_name: str | None,
    agent_name: str | None,
    process_name: str | None,
    root_name: str | None,
    timestamp: str,
    response_id: str,
) -> Draft:
    """Return a COMMAND of these `action`s."""
    return {
        **_SERVER,
        "type": "command",
        "status": _CONTINUE,
        "agent_name": agent_name,
        "process_name": process_name,
        "root_name": root_name,
        "actions": actions,
        "session_id": session_id,
        "task_name": task_name,
        "timestamp": timestamp,
        "response_id": response_id,
    }


def action(command: Command, call_id: str) -> Draft:
    """Return one tool call of a COMMAND, under this id."""
    return {
        "tool_name": command.tool_name,
        "parameters": command.parameters,
        "tool_type": command.tool_type,
        "call_id": call_id,
    }


def command_results(
    results: Sequence[Result],
    *,
    status: TaskStatus,
    client_id: str,
    session_id: str | None,
    timestamp: str,
    request_id: str,
    prev_response_id: str | None,
) -> Draft:
    """Return a device's COMMAND_RESULTS."""
    return {
        **_CLIENT,
        "type": "command_results",
        "status": status,
        "client_type": ClientType.DEVICE.value,
        "session_id": session_id,
        "client_id": client_id,
        "action_results": results,
        "timestamp": timestamp,
        "request_id": request_id,
        "prev_response_id": prev_response_id,
    }


def server_heartbeat(*, session_id: str | None, timestamp: str, response_id: str) -> Draft:
    """Return a server's HEARTBEAT."""
    return {
        **_SERVER,
        "type": "heartbeat",
        "status": _OK,
        "session_id": session_id,
        "timestamp": timestamp,
        "response_id": response_id,
    }


def client_heartbeat(*, client_type: ClientType, client_id: str, timestamp: str, metadata: Draft | None) -> Draft:
    """Return a client's HEARTBEAT."""
    return {
        **_CLIENT,
        "type": "heartbeat",
        "status": _OK,
        "client_type": client_type,
        "client_id": client_id,
        "timestamp": timestamp,
        "metadata": metadata,
    }


def written(message: ClientMessage | ServerMessage | Draft, extension: Mapping[str, Any] | None = None) -> str:
    """Return the frame's text; the extension last, and only when set."""
    if not isinstance(message, dict):
        return message.to_json(extension)
    return to_json({**message, EXTENSION: extension} if extension else message, inf_nan_mode="null").decode()
