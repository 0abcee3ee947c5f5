"""Scripted parts for device agents: replies from a list, tools from a table, a gate that notes what it is asked."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from starloom.agents.assignment import AgentLimits, Assignment
from starloom.agents.blackboard import Blackboard
from starloom.agents.device_agent import AgentParts
from starloom.agents.plans import DeviceProfile, ToolProfile
from starloom.clock import ManualClock
from starloom.errors import ModelError
from starloom.ids import CountingIds, RunId
from starloom.llm.port import Message, Reply, Usage
from starloom.processing.dispatch import CommandResult, CommandStatus
from starloom.safety.policy import Decision, Facts, Risk, Verdict


def schema(**properties):
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


READ = ToolProfile("files.read", "Read a text file.", schema(path="string"), Risk.READ, ("path",))
WRITE = ToolProfile("files.write", "Write a text file.", schema(path="string", text="string"), Risk.WRITE, ("path",))
DELETE = ToolProfile("files.delete", "Delete a file.", schema(path="string"), Risk.IRREVERSIBLE, ("path",))
RUN = ToolProfile("shell.run", "Run a command.", schema(command="string"), Risk.IRREVERSIBLE, ("command",))
DEVICE = DeviceProfile("north", "linux", (READ, WRITE, DELETE, RUN))


class ScriptedModel:
    """Gives its replies one by one, each validated against the schema that it is asked for."""

    name = "scripted"

    def __init__(self, replies, usage=None):
        self.replies = list(replies)
        self.usage = usage or Usage(100, 10, cost=0.01)
        self.prompts: list[list[Message]] = []

    async def complete(self, messages, schema, *, max_tokens=2048):
        self.prompts.append(list(messages))
        if not self.replies:
            raise ModelError("The script has no more replies.")
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return Reply(schema.model_validate(reply), self.name, self.usage)

    def seen(self, number=-1):
        """Return a whole prompt as one text."""
        return "\n".join(f"{message.role}: {message.text}" for message in self.prompts[number])


class ScriptedDevice:
    """Answers tools from a table; a value, a function of the arguments, or an exception to raise."""

    def __init__(self, tools=None):
        self.tools = tools or {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def execute_commands(self, commands, *, timeout_s=None):
        return [await self.one(command) for command in commands]

    async def one(self, command):
        self.calls.append((command.tool, command.arguments))
        answer = self.tools.get(command.tool, {"ok": True})
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Callable):
            answer = answer(**command.arguments)
        if isinstance(answer, CommandResult):
            return answer
        return CommandResult(command.call_id, CommandStatus.SUCCESS, answer)

    def names(self):
        return [tool for tool, _ in self.calls]


def failure(error):
    return CommandResult("", CommandStatus.FAILURE, error=error)


class NotingGate:
    """Allows everything but what its table says; notes each action and the facts it was judged on."""

    def __init__(self, verdicts=None):
        self.verdicts = verdicts or {}
        self.asked: list[tuple[str, Facts]] = []

    async def admit(self, action, facts, *, run_id, task_id=""):
        self.asked.append((action.tool, facts))
        verdict = self.verdicts.get(action.tool)
        if callable(verdict):
            verdict = verdict(action, facts)
        return verdict or Verdict(Decision.ALLOW, "test", "")

    def tools(self):
        return [tool for tool, _ in self.asked]


class Answers:
    """A person with prepared answers; None when they run out."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.questions: list[str] = []

    async def ask(self, question):
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else None


@dataclass
class Scene:
    """Everything around an agent, for a test to look at afterwards."""

    model: ScriptedModel
    device: ScriptedDevice
    gate: NotingGate
    parts: AgentParts
    events: list[Any] = field(default_factory=list)


def reply(status="CONTINUE", *actions, **more):
    """Return a device agent's reply; an action is (tool, arguments)."""
    calls = [{"tool": tool, "arguments": arguments} for tool, arguments in actions]
    return {"thought": "t", "status": status, "action": calls or None, **more}


def fence(text, provenance):
    return f"<<{provenance.source}|{text}>>"


@pytest.fixture
def make_scene():
    def make(replies, *, tools=None, verdicts=None, interactor=None, limits=None, detect=None, middleware=()):
        model, device, gate = ScriptedModel(replies), ScriptedDevice(tools), NotingGate(verdicts)
        events: list[Any] = []

        async def record(event):
            events.append(event)

        parts = AgentParts(
            model=model,
            dispatcher=device,
            gate=gate,
            recorder=record,
            fence=fence,
            clock=ManualClock(),
            ids=CountingIds(),
            interactor=interactor,
            detect=detect or (lambda text: ()),
            limits=limits or AgentLimits(),
            blackboard=Blackboard(),
            middleware=tuple(middleware),
        )
        return Scene(model, device, gate, parts, events)

    return make


@pytest.fixture
def assignment():
    return Assignment("tidy the notes", DEVICE, Facts(trusted_text="tidy the notes"), RunId("run_1"), task_id="t1")


@pytest.fixture
def kit():
    """The builders of this file, for test modules to use."""
    return Kit()


class Kit:
    reply = staticmethod(reply)
    failure = staticmethod(failure)
    fence = staticmethod(fence)
    schema = staticmethod(schema)
    Answers = Answers
    ScriptedModel = ScriptedModel
    device = DEVICE
    read, write, delete, run = READ, WRITE, DELETE, RUN
    refused = Verdict(Decision.DENY, "refused", "The user said no.")
    denied = Verdict(Decision.DENY, "destinations", "The path is outside.")

    @staticmethod
    def outcomes(scene):
        return [json.dumps(event.__class__.__name__) for event in scene.events]
