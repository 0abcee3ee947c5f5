"""How agents' steps read in a run's timeline."""

from starloom.cli.timeline import told
from starloom.journal import events as e


def test_an_agent_s_step_is_its_status_its_thought_and_what_came_of_each_action():
    reply = e.AgentResponse("LinuxAgent", 3, {"status": "CONTINUE", "thought": "Read it first."}, "a", "0f")
    assert told(reply) == "LinuxAgent step 3: CONTINUE, Read it first."
    read = e.AgentAction("LinuxAgent", "files.read", {}, "allow", "success", "a", "north", step=3, result="two\nlines")
    assert told(read) == "LinuxAgent step 3 called files.read on north: success (allow): two lines"
    failed = e.AgentAction("LinuxAgent", "files.read", {}, "allow", "failure", "a", "north", "It is gone.", step=3)
    assert told(failed).endswith("failure (allow): It is gone.")


def test_a_task_s_own_call_has_no_step():
    assert told(e.AgentAction("task", "files.read", {}, "allow", "success", "a", "north")) == (
        "task called files.read on north: success (allow)"
    )
