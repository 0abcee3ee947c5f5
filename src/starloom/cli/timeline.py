"""A run's timeline in words: one line an event that a person cares about, and what it comes to. Pure.

Called by `runs show` and `replay`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from starloom.journal import events as e
from starloom.journal.events import Event, Json, Recorded

_SHOWN = 100
_SMALL = (e.TaskReady, e.EdgeDecided, e.DeviceStatusChanged, e.ConstellationStarted, e.CostRecorded)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the event's number, the seconds since the run began, and what happened."""

    seq: int
    at_s: float
    what: str


def timeline(recorded: Sequence[Recorded], *, everything: bool = False) -> list[Line]:
    """Return the lines of a run; `everything` has small steps too."""
    if not recorded:
        return []
    began = recorded[0].at
    return [
        Line(item.seq, round((item.at - began).total_seconds(), 3), told(item.event))
        for item in recorded
        if everything or not isinstance(item.event, _SMALL)
    ]


def summary(recorded: Sequence[Recorded]) -> dict[str, Json]:
    """Return what a run comes to: how it ended, how long it took, how much was done, asked and spent."""
    happened = [item.event for item in recorded]
    ended = next((event for event in reversed(happened) if isinstance(event, e.RunEnded)), None)
    costs = [event for event in happened if isinstance(event, e.CostRecorded)]
    known = [event.cost for event in costs if event.cost is not None]

    def count(*kinds: type[Event]) -> int:
        return sum(isinstance(event, kinds) for event in happened)

    return {
        "ended": ended.stop_reason if ended else "open",
        "duration_s": round((recorded[-1].at - recorded[0].at).total_seconds(), 3) if recorded else 0.0,
        "events": len(recorded),
        "completed": count(e.TaskCompleted),
        "failed": count(e.TaskFailed),
        "cancelled": count(e.TaskCancelled),
        "attempts": count(e.TaskStarted),
        "edits": count(e.EditApplied),
        "approvals": count(e.ApprovalAsked),
        "questions": count(e.QuestionAsked),
        "taken_up": sum(isinstance(event, e.RunResumed) and event.by == "recovery" for event in happened),
        "model_calls": len(costs),
        "input_tokens": sum(event.input_tokens for event in costs),
        "output_tokens": sum(event.output_tokens for event in costs),
        "cost": sum(known) if len(known) == len(costs) else None,
    }


def told(event: Event) -> str:
    """Return an event in words."""
    name = event.kind.replace("_", " ")
    match event:
        case e.RunStarted(request=request, source=source):
            return f"{source} accepted: {_brief(request)}"
        case e.RunEnded(stop_reason=reason, error=error):
            return f"run ended: {reason}" + (f" ({_brief(error)})" if error else "")
        case e.EditApplied(version=version, commands=commands, by=by, action=action):
            return f"{action} by {by}: {_commands(commands)} → version {version}"
        case e.TaskStarted(task_id=task_id, attempt=attempt, device_id=device_id):
            return f"{task_id} started on {device_id}" + (f", attempt {attempt}" if attempt > 1 else "")
        case e.TaskCompleted(task_id=task_id, result=result):
            return f"{task_id} completed: {_brief(result)}"
        case e.TaskFailed(task_id=task_id, error=error, in_doubt=in_doubt):
            return f"{task_id} failed: {_brief(error)}" + (" (in doubt)" if in_doubt else "")
        case e.TaskRetrying(task_id=task_id, error=error, delay_s=delay_s):
            return f"{task_id} is tried again in {delay_s:g} s: {_brief(error)}"
        case e.AgentResponse() | e.AgentAction():
            return _step(event)
        case _:
            return _people(event) or f"{name} {_rest(event)}".strip()


def _step(event: e.AgentResponse | e.AgentAction) -> str:
    """Return what an agent thought, or what came of an action, under the number of its step."""
    who = f"{event.agent} step {event.step}" if event.step else event.agent
    if isinstance(event, e.AgentResponse):
        reply = event.response if isinstance(event.response, dict) else {}
        return f"{who}: {reply.get('status', '?')}, {_brief(reply.get('thought', ''))}"
    said = event.error or event.result
    ended = f"{event.status} ({event.decision})" + (f": {_brief(said)}" if said else "")
    return f"{who} called {event.tool} on {event.device_id}: {ended}"


def _people(event: Event) -> str | None:
    match event:
        case e.ApprovalAsked(approval_id=approval_id, tool=tool, device_id=device_id, reason=reason):
            return f"approval asked ({approval_id}): {tool} on {device_id}, {_brief(reason)}"
        case e.ApprovalAnswered(approval_id=approval_id, approved=approved, by=by):
            return f"approval answered ({approval_id}): {'yes' if approved else 'no'} by {by}"
        case e.QuestionAsked(question_id=question_id, question=question):
            return f"question asked ({question_id}): {_brief(question)}"
        case e.QuestionAnswered(question_id=question_id, answer=answer, by=by):
            return f"question answered ({question_id}): {_brief(answer)} by {by}"
        case e.CostRecorded(role=role, model=model, input_tokens=given, output_tokens=written, cost=cost):
            price = "" if cost is None else f", {cost:g}"
            return f"{role} spent {given} + {written} tokens of {model}{price}"
        case _:
            return None


def _rest(event: Event) -> str:
    fields = e.encode(event)
    return ", ".join(f"{name} {_brief(value)}" for name, value in fields.items() if value not in ("", None, [], {}))


def _commands(commands: list[Json]) -> str:
    names = [str(command.get("command", "?")) for command in commands]
    return names[0] if len(names) == 1 else f"{len(names)} commands"


def _brief(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
