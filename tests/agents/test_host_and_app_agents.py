"""From the host to an application's agent and back: the states say who acts next."""

from dataclasses import replace

import pytest

from starloom.agents.app_agent import APP_STATES
from starloom.agents.host_agent import HOST_STATES, HostAgent, applications_of
from starloom.agents.status import Evidence, StopReason
from starloom.processing.context import Context
from starloom.processing.names import ContextNames


def host_reply(status, application="", subtask="", **more):
    return {"thought": "t", "status": status, "application": application, "current_subtask": subtask, **more}


async def drive(agent, context=None, most=30):
    context = context or Context()
    passed = []
    while not agent.state.is_round_end():
        assert len(passed) <= most
        passed.append(f"{agent.name} {agent.state.name()}")
        await agent.handle(context)
        state = agent.state.next_state(agent)
        agent = agent.state.next_agent(agent)
        agent.set_state(state)
    passed.append(f"{agent.name} {agent.state.name()}")
    return agent, passed


def test_the_tables_are_those_of_the_specification():
    assert set(HOST_STATES.names) == {"CONTINUE", "ASSIGN", "PENDING", "CONFIRM", "FINISH", "FAIL", "ERROR"}
    assert set(APP_STATES.names) == {"CONTINUE", "SCREENSHOT", "PENDING", "CONFIRM", "FINISH", "FAIL", "ERROR"}


def test_applications_are_the_groups_of_tools(kit):
    assert applications_of(kit.device) == ("files", "shell")


async def test_a_subtask_goes_to_the_application_and_the_host_acts_again(make_scene, assignment, kit):
    scene = make_scene(
        [
            host_reply("ASSIGN", "files", "read a.txt", message=["it is short"]),
            kit.reply("CONTINUE", ("files.read", {"path": "a.txt"})),
            kit.reply("FINISH", result="the text"),
            host_reply("FINISH", result="all done"),
        ]
    )
    context = Context()
    agent, passed = await drive(HostAgent(scene.parts, assignment), context)
    assert passed == [
        "HostAgent CONTINUE",
        "HostAgent ASSIGN",
        "AppAgent:files CONTINUE",
        "AppAgent:files CONTINUE",
        "AppAgent:files FINISH",
        "HostAgent CONTINUE",
        "HostAgent FINISH",
    ]
    assert (agent.stop_reason, agent.result) == (StopReason.FINISHED, "all done")
    assert agent.evidence is Evidence.CHECKED
    assert context.get(ContextNames.PREVIOUS_SUBTASKS) == [
        {"subtask": "read a.txt", "application": "files", "status": "finished", "result": "the text"}
    ]
    assert context.get(ContextNames.SUBTASK) == "read a.txt"
    assert context.get(ContextNames.HOST_MESSAGE) == ["it is short"]
    assert "the text" in scene.model.seen()


async def test_an_applications_agent_has_only_its_own_tools(make_scene, assignment, kit):
    scene = make_scene([host_reply("ASSIGN", "files", "x"), kit.reply("FAIL"), host_reply("FAIL")])
    await drive(HostAgent(scene.parts, assignment))
    assert "files.read(" in scene.model.seen(1)
    assert "shell.run(" not in scene.model.seen(1)


async def test_an_applications_agent_is_reused(make_scene, assignment, kit):
    scene = make_scene(
        [
            host_reply("ASSIGN", "files", "one"),
            kit.reply("FINISH"),
            host_reply("ASSIGN", "files", "two"),
            kit.reply("FINISH"),
            host_reply("FINISH"),
        ]
    )
    host = HostAgent(scene.parts, assignment)
    context = Context()
    await drive(host, context)
    assert len(host._apps) == 1
    assert [entry["subtask"] for entry in context.get(ContextNames.PREVIOUS_SUBTASKS)] == ["one", "two"]
    assert "Goal:\ntwo" in scene.model.seen(3)


async def test_a_failed_subtask_comes_back_to_the_host_which_plans_again(make_scene, assignment, kit):
    scene = make_scene(
        [
            host_reply("ASSIGN", "files", "one"),
            kit.reply("FAIL", comment="no such file"),
            host_reply("ASSIGN", "shell", "two"),
            kit.reply("FINISH", ("shell.run", {"command": "ls"})),
            host_reply("FINISH"),
        ]
    )
    agent, passed = await drive(HostAgent(scene.parts, assignment))
    assert "AppAgent:files FAIL" in passed
    assert agent.stop_reason is StopReason.FINISHED
    assert "no such file" in scene.model.seen(2)
    assert "The last subtask did not succeed" in scene.model.seen(2)
    assert agent.evidence is Evidence.CLAIMED


async def test_failures_are_limited_and_the_end_has_a_reason(make_scene, assignment, kit):
    replies = []
    for number in range(3):
        replies += [host_reply("ASSIGN", "files", f"try {number}"), kit.reply("FAIL", comment=f"no {number}")]
    scene = make_scene(replies)
    agent, passed = await drive(HostAgent(scene.parts, assignment))
    assert passed[-1] == "HostAgent FAIL"
    assert agent.error == "Too many subtasks failed; the last: no 2"


async def test_an_error_below_comes_back_to_the_host_too(make_scene, assignment):
    scene = make_scene([host_reply("ASSIGN", "files", "one")])
    agent, passed = await drive(HostAgent(scene.parts, assignment))
    assert "AppAgent:files ERROR" in passed
    assert passed[-1] == "HostAgent ERROR"
    assert agent.stop_reason is StopReason.ERROR


async def test_an_assignment_that_lacks_something_is_asked_again(make_scene, assignment):
    scene = make_scene([host_reply("ASSIGN", "excel", "x"), host_reply("FAIL", comment="no")])
    await drive(HostAgent(scene.parts, assignment))
    assert "'excel' is not one of files, shell" in scene.model.seen(1)


async def test_the_host_asks_the_user(make_scene, assignment, kit):
    person = kit.Answers("the second")
    scene = make_scene([host_reply("PENDING", questions=["Which one?"]), host_reply("FINISH")], interactor=person)
    host = HostAgent(scene.parts, assignment)
    await drive(host)
    assert "The user answered: the second" in scene.model.seen()
    assert host.request.facts.trusted_text == "tidy the notes\nthe second"


async def test_nobody_to_ask_ends_the_second_time(make_scene, assignment):
    scene = make_scene([host_reply("PENDING", questions=["A?"]), host_reply("PENDING", questions=["B?"])])
    agent, _ = await drive(HostAgent(scene.parts, assignment))
    assert agent.stop_reason is StopReason.FAILED


async def test_a_confirmed_assignment_is_made(make_scene, assignment, kit):
    scene = make_scene([host_reply("CONFIRM", "files", "delete all"), kit.reply("FINISH"), host_reply("FINISH")])
    _, passed = await drive(HostAgent(scene.parts, assignment))
    assert passed[:3] == ["HostAgent CONTINUE", "HostAgent CONFIRM", "HostAgent ASSIGN"]
    assert scene.gate.tools() == ["assign"]


@pytest.mark.parametrize(
    ("verdict", "reason"), [("refused", StopReason.USER_REFUSED), ("denied", StopReason.POLICY_DENIED)]
)
async def test_a_refused_assignment_is_not_made(make_scene, assignment, kit, verdict, reason):
    scene = make_scene([host_reply("CONFIRM", "files", "delete all")], verdicts={"assign": getattr(kit, verdict)})
    agent, _ = await drive(HostAgent(scene.parts, assignment))
    assert agent.stop_reason is reason
    assert len(scene.model.prompts) == 1


async def test_a_refusal_below_reaches_the_host_as_what_it_is(make_scene, assignment, kit):
    scene = make_scene(
        [
            host_reply("ASSIGN", "files", "delete a"),
            kit.reply("CONTINUE", ("files.delete", {"path": "a"})),
            host_reply("FAIL", comment="the user does not want it"),
        ],
        verdicts={"files.delete": kit.refused},
    )
    context = Context()
    await drive(HostAgent(scene.parts, assignment), context)
    assert context.get(ContextNames.PREVIOUS_SUBTASKS)[0]["status"] == "user_refused"


async def test_an_application_looks_again_when_it_wants_to(make_scene, assignment, kit):
    scene = make_scene(
        [
            host_reply("ASSIGN", "files", "x"),
            kit.reply("SCREENSHOT", ("files.read", {"path": "a"})),
            kit.reply("FINISH"),
            host_reply("FINISH"),
        ]
    )
    _, passed = await drive(HostAgent(scene.parts, replace(assignment, goal="g")))
    assert "AppAgent:files SCREENSHOT" in passed
