"""A draft is checked against what is connected; what passes becomes a document that the editor takes."""

import pytest

from starloom.agents.drafts import draft_document, draft_problems, draft_summary
from starloom.agents.plans import DeviceProfile, PlanDraft, PlannedStep
from starloom.constellation.documents import build


def step(step_id, tool="files.read", arguments=None, device="north", after=(), description="do it"):
    given = {"path": "a"} if arguments is None else arguments
    return PlannedStep(step_id, step_id, description, device, tool, given, tuple(after))


def draft(*steps):
    return PlanDraft(tuple(steps), "m")


@pytest.fixture
def devices(kit):
    south = DeviceProfile("south", "linux", (kit.read,), has_agent=False)
    return [kit.device, south]


def test_a_good_draft_has_no_problems_and_builds(devices):
    good = draft(
        step("a"),
        step("b", device="south"),
        step("c", "files.write", {"path": "out.txt", "text": "{{ tasks.a.result.text }}"}, after=("b",)),
        PlannedStep("d", "look", "say what {{ tasks.c.result.path }} holds", "north"),
    )
    assert draft_problems(good, devices) == ()
    graph = build(draft_document(good, name="n"))
    assert graph.name == "n"
    assert {(line.from_task_id, line.to_task_id) for line in graph.lines.values()} == {
        ("b", "c"),
        ("a", "c"),
        ("c", "d"),
    }
    assert {line.dependency_type.value for line in graph.lines.values()} == {"success_only"}
    assert graph.tasks["c"].task_data["tool"] == "files.write"
    assert graph.tasks["c"].target_device_id == "north"


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "The plan has no steps."),
        ([step("a"), step("a")], "Step id 'a' comes twice."),
        ([step("a b")], "Step id 'a b': use letters"),
        ([step("a", device="west")], "Step a: there is no device 'west'; connected: north, south."),
        ([step("a", "files.raed")], "Step a: tool: there is no 'files.raed'. Did you mean files.read?"),
        ([step("a", "files.write", device="south")], "Step a: tool: there is no 'files.write'"),
        ([step("a", arguments={})], "'path' is a required property"),
        ([step("a", arguments={"path": 1})], "Step a: files.read: path: 1 is not of type 'string'"),
        ([step("a", after=("z",))], "Step a: it names the step 'z', which does not exist."),
        ([step("a", arguments={"path": "{{ tasks.z.result }}"})], "names the step 'z'"),
        ([step("a", arguments={"path": "{{ tasks.z }}"})], "cannot be read"),
        ([step("a", after=("b",)), step("b", after=("a",))], "wait for each other in a circle"),
        ([step("a", arguments={"path": "{{ tasks.a.result }}"})], "circle"),
        ([PlannedStep("a", "a", "a goal", "south")], "south cannot pursue a goal in words"),
        ([PlannedStep("a", "a", " ", "north")], "neither a tool nor a description"),
    ],
)
def test_each_problem_is_one_line_that_names_the_step(devices, steps, problem):
    found = draft_problems(draft(*steps), devices)
    assert any(problem in line for line in found), found


def test_a_step_for_any_device_needs_one_that_has_the_tool(devices):
    assert draft_problems(draft(step("a", "files.write", {"path": "a", "text": ""}, device=None)), devices) == ()
    assert draft_problems(draft(step("a", "office.write", device=None)), devices)


def test_a_refusal_is_no_problem(devices):
    assert draft_problems(PlanDraft((), "m", refusal="no such tool"), devices) == ()


def test_the_summary_has_one_line_a_step(devices):
    lines = draft_summary(
        draft(step("a"), step("b", None, device=None, after=("a",)), step("c", arguments={"path": "x" * 500}))
    )
    assert lines[0] == 'a  north  files.read(path="a")'
    assert lines[1] == "b  any device  goal: do it  after a"
    assert len(lines[2]) == 120
