"""Whatever a model writes, nothing reaches the device that the gate has not admitted before."""

import asyncio

from hypothesis import given, settings, strategies as st

from starloom.agents.assignment import Assignment
from starloom.agents.device_agent import AgentParts
from starloom.agents.plans import DeviceProfile, ToolProfile
from starloom.agents.shell_agent import LinuxAgent
from starloom.clock import ManualClock
from starloom.errors import ModelError
from starloom.ids import CountingIds, RunId
from starloom.llm.port import Reply, Usage
from starloom.processing.context import Context
from starloom.processing.dispatch import CommandResult, CommandStatus
from starloom.safety.policy import Decision, Facts, Risk, Verdict

TOOLS = tuple(ToolProfile(f"t.{risk.value}", "", {"type": "object"}, risk) for risk in Risk)
DEVICE = DeviceProfile("d", "linux", TOOLS)

actions = st.lists(
    st.builds(
        lambda risk, n: {"tool": f"t.{risk.value}", "arguments": {"n": n}}, st.sampled_from(Risk), st.integers(0, 3)
    ),
    max_size=4,
)
replies = st.lists(
    st.fixed_dictionaries(
        {
            "thought": st.just("t"),
            "status": st.sampled_from(["CONTINUE", "PENDING", "CONFIRM", "FINISH", "FAIL"]),
            "action": actions,
            "questions": st.just(["?"]),
        }
    ),
    max_size=8,
)


class World:
    """Model, device, gate and person in one; notes what was admitted and what was done."""

    name = "world"

    def __init__(self, script, denied, refused, fails):
        self.script, self.denied, self.refused, self.fails = list(script), denied, refused, fails
        self.admitted = []
        self.done = []

    async def complete(self, messages, schema, *, max_tokens=2048):
        if not self.script:
            raise ModelError("no more")
        return Reply(schema.model_validate(self.script.pop(0)), "world", Usage())

    async def admit(self, action, facts, *, run_id, task_id=""):
        if action.risk in self.denied:
            return Verdict(Decision.DENY, "test", "no")
        if action.risk in self.refused:
            return Verdict(Decision.DENY, "refused", "no")
        self.admitted.append((action.tool, action.arguments["n"]))
        return Verdict(Decision.ALLOW, "test", "")

    async def execute_commands(self, commands, *, timeout_s=None):
        for command in commands:
            assert (command.tool, command.arguments["n"]) in self.admitted
            self.admitted.remove((command.tool, command.arguments["n"]))
            self.done.append(command.tool)
        return [
            CommandResult("", CommandStatus.FAILURE if command.arguments["n"] in self.fails else CommandStatus.SUCCESS)
            for command in commands
        ]

    async def ask(self, question):
        return "go on"

    async def record(self, event):
        pass


async def drive(world):
    parts = AgentParts(world, world, world, world.record, lambda text, label: text, ManualClock(), CountingIds(), world)
    agent = LinuxAgent(parts, Assignment("g", DEVICE, Facts(), RunId("r")))
    context = Context()
    for _ in range(40):
        if agent.state.is_round_end():
            return agent
        await agent.handle(context)
        agent.set_state(agent.state.next_state(agent))
    raise AssertionError("the round does not end")


@settings(max_examples=150, deadline=None)
@given(replies, st.sets(st.sampled_from(Risk)), st.sets(st.sampled_from(Risk)), st.sets(st.integers(0, 3)))
def test_every_action_is_admitted_before_it_is_done_and_every_end_has_a_reason(script, denied, refused, fails):
    world = World(script, denied, refused, fails)
    agent = asyncio.run(drive(world))
    assert agent.stop_reason is not None
    assert not {f"t.{risk.value}" for risk in denied | refused} & set(world.done)
