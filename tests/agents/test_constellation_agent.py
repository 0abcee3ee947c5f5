"""The constellation's agent trusts no draft, and stands where its run stands."""

import pytest

from starloom.agents.constellation_agent import CONSTELLATION_STATES, ConstellationAgent
from starloom.agents.edits import EditDraft, Surprise
from starloom.agents.plans import PlanDraft, PlannedStep
from starloom.agents.status import StopReason
from starloom.constellation.documents import build
from starloom.errors import ModelError, UsageError


class Drafting:
    def __init__(self, answer):
        self.answer = answer

    async def plan(self, request, devices):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def replan(self, request, surprises, document, devices):
        return self.answer


GOOD = PlanDraft((PlannedStep("a", "read", "read it", "north", "files.read", {"path": "a.txt"}),), "m")


def test_the_table_is_that_of_the_specification():
    assert CONSTELLATION_STATES.names == ("START", "CONTINUE", "FINISH", "FAIL")
    assert CONSTELLATION_STATES.words_for_models == ()


async def test_a_good_draft_becomes_a_document_and_a_preview(kit):
    agent = ConstellationAgent(Drafting(GOOD))
    assert agent.state.name() == "START"
    plan = await agent.create("  read   a.txt  ", [kit.device])
    assert plan.refusal is None
    assert plan.summary == ['a  north  files.read(path="a.txt")']
    assert build(plan.document).name == "read a.txt"
    assert agent.state.name() == "CONTINUE"
    agent.run_ended(StopReason.FINISHED)
    assert agent.state.name() == "FINISH"
    assert agent.state.is_round_end()


async def test_a_refusal_is_a_plan_without_tasks(kit):
    agent = ConstellationAgent(Drafting(PlanDraft((), "m", refusal="cannot")))
    plan = await agent.create("print", [kit.device])
    assert (plan.refusal, plan.document["tasks"]) == ("cannot", {})
    assert (agent.state.name(), agent.error) == ("FINISH", "cannot")


@pytest.mark.parametrize("answer", [PlanDraft((), "m"), ModelError("gone")])
async def test_no_usable_draft_fails_with_its_reason(kit, answer):
    agent = ConstellationAgent(Drafting(answer))
    with pytest.raises(ModelError):
        await agent.create("x", [kit.device])
    assert agent.state.name() == "FAIL"
    assert agent.state.is_round_end()


async def test_without_devices_there_is_no_planning():
    with pytest.raises(UsageError, match="No device is connected"):
        await ConstellationAgent(Drafting(GOOD)).create("x", [])


async def test_an_edit_is_checked_too(kit):
    graph = {"tasks": {"a": {"task_id": "a", "status": "failed"}}, "dependencies": {}}
    surprise = [Surprise("failed", "a")]
    bad = EditDraft(({"command": "remove_task", "task_id": "a"},))
    agent = ConstellationAgent(Drafting(GOOD), replanner=Drafting(bad))
    with pytest.raises(ModelError, match="cannot be changed"):
        await agent.replan("x", surprise, graph, [kit.device])
    quiet = await ConstellationAgent(Drafting(GOOD)).replan("x", surprise, graph, [kit.device])
    assert quiet.commands == ()
    fine = EditDraft((), "leave it")
    agent = ConstellationAgent(Drafting(GOOD), replanner=Drafting(fine))
    assert await agent.replan("x", surprise, graph, [kit.device]) is fine


async def test_a_run_that_fails_stands_at_fail(kit):
    agent = ConstellationAgent(Drafting(GOOD))
    await agent.create("x", [kit.device])
    agent.run_ended(StopReason.CANCELLED, "by the user")
    assert (agent.state.name(), agent.stop_reason, agent.error) == ("FAIL", StopReason.CANCELLED, "by the user")
