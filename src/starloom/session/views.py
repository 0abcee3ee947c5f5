"""Rows for people's programs: devices, runs and events as JSON, one form for the HTTP API, `--json` and the page.

Pure functions over records; called by `hub` and `cli`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starloom.fleet.credentials import Credential
from starloom.fleet.records import DeviceRecord
from starloom.journal.events import EditApplied, Json, Recorded, TaskCompleted, encode
from starloom.journal.store import RunRecord

_BRIEF = 160


@dataclass(frozen=True, slots=True)
class TaskLine:
    """What a view shows of a task that an edit added."""

    task_id: str
    name: str
    device_id: str
    tool: str


def device_row(record: DeviceRecord) -> dict[str, Json]:
    """Return a device as JSON."""
    return {
        "device_id": record.device_id,
        "display_name": record.display_name,
        "platform": record.platform,
        "device_type": record.device_type,
        "status": record.status.value,
        "current_task": record.current_task,
        "connected_at": record.connected_at.isoformat() if record.connected_at else None,
        "last_seen": record.last_seen.isoformat() if record.last_seen else None,
        "groups": list(record.groups),
        "tags": list(record.tags),
        "tools": [tool.tool_name for tool in record.tools],
        "applications": list(record.applications),
        "display": record.display,
        "system_info": record.system_info,
        "outpost": record.outpost,
        "trouble": record.trouble,
    }


def device_detail(record: DeviceRecord, credential: Credential | None) -> dict[str, Json]:
    """Return all that is known of a device as JSON; `credential` null: it comes with the hub's key."""
    return {
        **device_row(record),
        "capabilities": sorted(record.capabilities),
        "limits": record.limits,
        "max_in_flight": record.max_in_flight,
        "credential": None
        if credential is None
        else {"issued_at": credential.issued_at, "used_at": credential.used_at},
    }


def run_row(record: RunRecord) -> dict[str, Json]:
    """Return a line of the list of runs as JSON; `stop_reason` null: not ended, it can be resumed."""
    return {
        "run_id": record.run_id,
        "request": record.request,
        "started_at": record.started_at.isoformat(),
        "ended_at": record.ended_at.isoformat() if record.ended_at else None,
        "stop_reason": record.stop_reason,
        "last_seq": record.last_seq,
    }


def recorded_row(recorded: Recorded) -> dict[str, Json]:
    """Return an event as JSON, with the tasks that an edit added, and a line about a result, spelled out."""
    event = recorded.event
    row = {
        "run_id": recorded.run_id,
        "seq": recorded.seq,
        "at": recorded.at.isoformat(),
        "kind": event.kind,
        "event": encode(event),
    }
    if isinstance(event, EditApplied):
        row["tasks"] = [
            {"task_id": line.task_id, "name": line.name, "device_id": line.device_id, "tool": line.tool}
            for line in added_tasks(event.commands)
        ]
    if isinstance(event, TaskCompleted):
        row["brief"] = brief(event.result)
    return row


def brief(result: Json) -> str:
    """Return one line about a task's result: a table's size and totals, a written file's path, else its first words."""
    if isinstance(result, dict) and {"columns", "rows"} <= result.keys():
        totals = "".join(f", {currency} {amount}" for currency, amount in (result.get("totals") or {}).items())
        unreadable = len(result.get("unreadable") or ())
        return f"{len(result['rows'])} rows{totals}" + (f", {unreadable} unreadable" if unreadable else "")
    if isinstance(result, dict) and isinstance(result.get("path"), str):
        return str(result["path"])
    line = " ".join((result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)).split())
    return line if len(line) <= _BRIEF else line[: _BRIEF - 1] + "…"


def added_tasks(commands: list[Json]) -> Iterator[TaskLine]:
    """Yield the tasks that an edit's commands add, in order."""
    for command in commands:
        if command.get("command") == "add_task":
            yield _task_line(command.get("task") or {})
        elif command.get("command") == "build_constellation":
            tasks = (command.get("document") or {}).get("tasks") or {}
            for task in tasks.values() if isinstance(tasks, Mapping) else tasks:
                yield _task_line(task)


def _task_line(task: Mapping[str, Any]) -> TaskLine:
    task_id = str(task.get("task_id", ""))
    return TaskLine(
        task_id=task_id,
        name=str(task.get("name") or task_id),
        device_id=str(task.get("target_device_id") or ""),
        tool=str((task.get("task_data") or {}).get("tool") or ""),
    )
