"""The compact contract: grammar and prompt from live tools, edges derived, checks."""

from dataclasses import dataclass, field

import pytest

from starloom.agents.compact_checks import complaints, corrected, devices_meant, names_device
from starloom.agents.compact_examples import example_turns
from starloom.agents.compact_names import occurs
from starloom.agents.compact_planner import CompactPlanner, prefix
from starloom.agents.compact_reading import read_plan, with_edges, written
from starloom.agents.compact_tools import UNSUPPORTED, Shape, compact_tools, system_prompt
from starloom.agents.plans import DeviceProfile, PlannedStep, ToolProfile
from starloom.errors import ModelError
from starloom.llm.port import Follow, Generated, Message, Usage
from starloom.safety.policy import Risk

TEXT = {"type": "string"}
TABLES = {"type": "array", "items": {"type": "object", "x-reference": True}}
FILES = {"type": "array", "items": TEXT}


def profile(name: str, risk: Risk, places: tuple[str, ...] = (), **arguments: dict[str, object]) -> ToolProfile:
    schema = {"type": "object", "properties": arguments, "required": list(arguments)}
    return ToolProfile(name, f"Does {name}. And more.", schema, risk, places)


TOOLS = (
    profile("invoices.read", Risk.READ, folder=TEXT),
    profile("sheets.write", Risk.WRITE, ("path",), tables=TABLES, path=TEXT),
    profile("reports.write", Risk.WRITE, ("path",), tables=TABLES, path=TEXT),
    profile("files.zip", Risk.WRITE, ("path",), files=FILES, path=TEXT),
    profile("files.copy", Risk.WRITE, ("path",), source=TEXT, path=TEXT),
    profile("files.delete", Risk.IRREVERSIBLE, ("path",), path=TEXT),
    profile("files.read", Risk.READ, path=TEXT),
    profile("shell.run", Risk.IRREVERSIBLE, ("command",), command=TEXT),
)
FILES_TOOL = ToolProfile(
    "files.read", "Read a text file.", {"properties": {"path": TEXT}, "required": ["path"]}, Risk.READ
)
SHEETS_TOOL = ToolProfile(
    "sheets.read", "Read a sheet.", {"properties": {"path": TEXT}, "required": ["path"]}, Risk.READ
)
HUB, BRANCH = DeviceProfile("hub", "linux", TOOLS), DeviceProfile("branch", "linux", TOOLS)
BOTH = [HUB, BRANCH]
COMPACT = compact_tools(BOTH)

DEMO = (
    "Read all invoices in examples/invoices/north on the hub and examples/invoices/south on the branch, write the "
    "totals to totals.xlsx, write a summary to summary.md and make a zip archive invoices.zip of both files"
)
DEMO_PLAN = """s1=hub.invoices.read("examples/invoices/north")
s2=branch.invoices.read("examples/invoices/south")
s3=hub.sheets.write([s1,s2],"totals.xlsx")
s4=hub.reports.write([s1,s2],"summary.md")
s5=hub.files.zip(["totals.xlsx","summary.md"],"invoices.zip")"""


@dataclass
class FakeModel:
    """A grammar model that says a plan line by line and remembers what it was asked."""

    plan: str
    asked: list[list[Message]] = field(default_factory=list)
    name: str = "fake"

    async def generate(
        self, messages: list[Message], grammar: str, *, max_tokens: int = 512, follow: Follow | None = None
    ) -> Generated:
        self.asked.append(messages)
        start = messages[-1].text if messages[-1].role == "assistant" else ""
        rest = self.plan.removeprefix(start)
        line, line_break, _ = rest.partition("\n")
        return Generated(line + line_break, self.name, Usage(10, 5, cost=0.0))


def edges(plan: str) -> dict[int, tuple[int, ...]]:
    return {step.line: step.after for step in with_edges(read_plan(plan, COMPACT))}


def found(plan: str, request: str) -> tuple[str, ...]:
    wrong = complaints(with_edges(read_plan(plan, COMPACT)), request, ["hub", "branch"])
    return tuple(item.text for item in wrong)


async def test_demo_plan_becomes_tool_steps_with_references_and_edges() -> None:
    model = FakeModel(DEMO_PLAN)
    draft = await CompactPlanner(model).plan(DEMO, BOTH)
    assert draft.warnings == ()
    assert draft.refusal is None
    assert [step.depends_on for step in draft.steps] == [(), (), ("s1", "s2"), ("s1", "s2"), ("s3", "s4")]
    assert draft.steps[2] == PlannedStep(
        step_id="s3",
        name="sheets.write totals.xlsx",
        description="Does sheets.write on hub: totals.xlsx",
        device_id="hub",
        tool="sheets.write",
        arguments={"tables": ["{{ tasks.s1.result }}", "{{ tasks.s2.result }}"], "path": "totals.xlsx"},
        depends_on=("s1", "s2"),
    )
    assert draft.steps[4].arguments == {"files": ["totals.xlsx", "summary.md"], "path": "invoices.zip"}


async def test_refusal_is_a_draft_without_steps() -> None:
    draft = await CompactPlanner(FakeModel(UNSUPPORTED)).plan("Walk the dog", BOTH)
    assert draft.steps == ()
    assert draft.refusal


@pytest.mark.parametrize("devices", [[], [DeviceProfile("hub", "linux", ())]])
async def test_nothing_offered_is_refused_without_asking_the_model(devices: list[DeviceProfile]) -> None:
    model = FakeModel("")
    assert (await CompactPlanner(model).plan("anything", devices)).refusal
    assert model.asked == []


def test_edges_come_from_references_and_from_files_made_earlier() -> None:
    assert edges(DEMO_PLAN) == {1: (), 2: (), 3: (1, 2), 4: (1, 2), 5: (3, 4)}


def test_same_file_on_another_device_is_no_edge() -> None:
    assert edges('s1=hub.files.delete("a")\ns2=branch.files.delete("a")') == {1: (), 2: ()}


def test_change_of_what_an_earlier_step_reads_waits_for_it() -> None:
    assert edges('s1=hub.files.read("a.txt")\ns2=hub.files.delete("./a.txt")') == {1: (), 2: (1,)}


def test_two_readers_of_one_file_run_side_by_side() -> None:
    assert edges('s1=hub.files.read("a")\ns2=hub.files.read("a")') == {1: (), 2: ()}


def test_folder_and_file_in_it_overlap() -> None:
    assert edges('s1=hub.files.copy("a","x/b")\ns2=hub.files.zip(["x"],"x.zip")') == {1: (), 2: (1,)}


def test_command_is_a_barrier_on_its_device_only() -> None:
    plan = 's1=hub.files.read("a")\ns2=hub.shell.run("make")\ns3=hub.files.read("b")\ns4=branch.files.read("c")'
    assert edges(plan) == {1: (), 2: (1,), 3: (2,), 4: ()}


def test_edge_that_follows_from_others_is_left_out() -> None:
    plan = 's1=hub.files.copy("a","b")\ns2=hub.files.copy("b","c")\ns3=hub.files.zip(["b","c"],"d")'
    assert edges(plan) == {1: (), 2: (1,), 3: (2,)}


@pytest.mark.parametrize(
    ("plan", "request_", "words"),
    [
        ('s1=hub.files.read("x.txt")', "read todo.txt", "neither in the request"),
        (
            's1=hub.files.copy("a","b")\ns2=branch.files.read("b")',
            "copy a to b, read b on the branch",
            "is made on 'hub'",
        ),
        ('s1=hub.files.zip(["a","z.zip"],"z.zip")', "zip a into z.zip", "its own output"),
        ('s1=hub.files.read("a")', "read a on the branch", "means the device 'branch'"),
        ('s1=hub.files.read("a")\ns2=hub.files.read("a")', "read a", "repeats line 1"),
        ('s1=hub.files.read("s1")', "read s1", "line number"),
        ('s1=branch.files.read("branch")', "read the files on the branch", "is a device"),
        (
            's1=hub.invoices.read("a")\ns2=hub.sheets.write([s1],"t.xlsx")\ns3=hub.reports.write([s2],"t.md")',
            "read invoices in a, write t.xlsx and t.md",
            "refers to s2",
        ),
    ],
)
def test_each_check_finds_its_mistake(plan: str, request_: str, words: str) -> None:
    assert any(words in complaint for complaint in found(plan, request_))


def test_right_plan_has_no_complaint() -> None:
    assert found(DEMO_PLAN, DEMO) == ()


@pytest.mark.parametrize(
    ("place", "request_", "expected"),
    [
        ("*.pdf", "all PDF files", True),
        ("*.docx", "all PDF files", False),
        ("reports/*.pdf", "zip the pdf files of reports", True),
        ("Docs/Readme.md", "readme.md in docs", True),
        (".", "list the files", True),
        ("data/x.txt", "read x.txt", False),
    ],
)
def test_names_must_occur_in_the_request(place: str, request_: str, expected: bool) -> None:
    assert occurs(place, request_) is expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("list the files", ("hub",)),
        ("list the files on the Branch", ("hub", "branch")),
        ("read branch/a.txt", ("hub",)),
        ("update both devices", ("hub", "branch")),
        ("pack all files into a.zip", ("hub",)),
        ("run uptime on all of my servers", ("hub", "branch")),
        ("在两台设备上运行 uptime", ("hub", "branch")),
    ],
)
def test_devices_that_the_words_mean(request_: str, expected: tuple[str, ...]) -> None:
    assert devices_meant(request_, ["hub", "branch"]) == expected


def test_device_name_inside_a_path_is_not_the_device() -> None:
    assert names_device("on the hub, please", "hub")
    assert not names_device("copy hub.txt to a/hub and hub-2", "hub")


def test_invented_command_is_noticed() -> None:
    assert any("is not in the request" in text for text in found('s1=hub.shell.run("rm -rf /")', "tidy up"))
    assert found('s1=hub.shell.run("git status")', "run git  status") == ()


def test_folder_is_no_file() -> None:
    assert any("wants a folder" in text for text in found('s1=hub.invoices.read("a.xlsx")', "read a.xlsx"))


def test_odd_device_names_are_read() -> None:
    device = DeviceProfile('my "pc"\\1', "linux", (profile("a.b", Risk.READ, path=TEXT),))
    tools = compact_tools([device])
    assert read_plan('s1=my "pc"\\1.a.b("x")', tools)[0].device_id == device.device_id


def test_tool_that_the_contract_cannot_express_is_left_out() -> None:
    odd = profile("odd.call", Risk.READ, options={"type": "object"})
    assert [tool.name for tool in compact_tools([DeviceProfile("hub", "linux", (odd, TOOLS[0]))])] == ["invoices.read"]


def test_schema_shapes_become_parameters() -> None:
    schema = {
        "type": "object",
        "properties": {
            "command": {"anyOf": [{"type": "array", "items": TEXT}, TEXT]},
            "mode": {"type": "string", "enum": ["fast", "safe"]},
            "count": {"type": "integer"},
            "cwd": {"type": "string"},
            "timeout_s": {"type": "number"},
        },
        "required": ["command", "mode", "count"],
    }
    tool = compact_tools([DeviceProfile("hub", "linux", (ToolProfile("a.b", "", schema),))])[0]
    assert [(item.name, item.shape, item.is_required) for item in tool.parameters] == [
        ("command", Shape.TEXT, True),
        ("mode", Shape.CHOICE, True),
        ("count", Shape.INTEGER, True),
        ("cwd", Shape.TEXT, False),
    ]
    step = read_plan('s1=hub.a.b("ls -l","safe",-3,cwd="x")', [tool])[0]
    assert step.values == {"command": "ls -l", "mode": "safe", "count": -3, "cwd": "x"}


@pytest.mark.parametrize(
    "line", ["s1=hub.files.read(", "s1=hub.nothing()", "s1=moon.files.read('a')", "s1=hub.files.read()"]
)
def test_line_outside_the_contract_is_a_model_error(line: str) -> None:
    with pytest.raises(ModelError):
        read_plan(line, COMPACT)


def test_examples_are_only_those_that_the_tools_can_play() -> None:
    turns = example_turns(COMPACT, ["hub", "branch"])
    assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
    for question, answer in zip(turns[::2], turns[1::2], strict=True):
        if answer.text != UNSUPPORTED:
            assert found(answer.text, question.text) == ()
    assert [turn.text for turn in example_turns(compact_tools([DeviceProfile("x", "web", ())]), ["x"])][1::2] == [
        UNSUPPORTED,
        UNSUPPORTED,
    ]


def test_prefix_does_not_depend_on_the_request() -> None:
    assert prefix(COMPACT, BOTH) == prefix(compact_tools(BOTH), BOTH)
    assert "sheets.write(tables, path): Does sheets.write" in system_prompt(COMPACT, BOTH)


@pytest.mark.parametrize(
    ("call", "is_wrong"),
    [
        ('files.read("a.txt")', False),
        ('files.read("a.pdf")', True),
        ('files.read("folder.d/a")', False),
        ('sheets.read("a.xlsx")', False),
        ('sheets.read("a.txt")', True),
    ],
)
def test_file_of_another_kind_is_noticed(call: str, is_wrong: bool) -> None:
    tools = compact_tools([DeviceProfile("hub", "linux", (FILES_TOOL, SHEETS_TOOL))])
    wrong = complaints(read_plan(f"s1=hub.{call}", tools), "read a.txt, a.pdf, a.xlsx and folder.d/a", ["hub"])
    assert any("is not for" in item.text for item in wrong) is is_wrong


def test_exchanged_name_and_text_are_put_right() -> None:
    write = profile("files.write", Risk.WRITE, ("path",), path=TEXT, text=TEXT)
    tools = compact_tools([DeviceProfile("hub", "linux", (write,))])
    request = "write done into status.txt"
    for plan in ('s1=hub.files.write("done","status.txt")', 's1=hub.files.write("status.txt","done")'):
        [step] = corrected(read_plan(plan, tools), request, ["hub"])
        assert step.values == {"path": "status.txt", "text": "done"}


async def test_warming_reads_the_same_turns_as_planning() -> None:
    model = FakeModel(UNSUPPORTED)
    planner = CompactPlanner(model)
    await planner.warm(BOTH)
    await planner.plan("anything", BOTH)
    assert model.asked[0][:-1] == model.asked[1][:-1]


@pytest.mark.parametrize(
    ("plan", "request_", "devices"),
    [
        ('s1=hub.files.read("a.txt")', "read a.txt on the branch", ["branch"]),
        ('s1=hub.files.read("a.txt")', "read a.txt on branch, please", ["branch"]),
        ('s1=branch.files.read("a.txt")', "read a.txt here and nothing on the branch", ["hub"]),
        ('s1=hub.files.read("a.txt")', "read a.txt on the hub and a.txt on the branch", ["hub"]),
        ('s1=hub.files.read("a.txt")', "read data.txt on the branch and a.txt", ["hub"]),
        (
            's1=hub.invoices.read("x/north")\ns2=hub.invoices.read("x/south")',
            "read the invoices in x/north on the hub and x/south on the branch",
            ["hub", "branch"],
        ),
    ],
)
def test_words_that_tie_a_file_to_a_device_decide(plan: str, request_: str, devices: list[str]) -> None:
    steps = corrected(read_plan(plan, COMPACT), request_, ["hub", "branch"])
    assert [step.device_id for step in steps] == devices


def test_step_is_written_as_it_was_read() -> None:
    assert "\n".join(map(written, read_plan(DEMO_PLAN, COMPACT))) == DEMO_PLAN


def test_few_examples_are_made_up_for_from_the_signatures() -> None:
    schema = {"properties": {"app": TEXT, "mode": {"enum": ["fast", "safe"]}, "count": {"type": "integer"}}}
    tool = ToolProfile("apps.open", "Open an app.", {**schema, "required": ["app", "mode", "count"]})
    turns = example_turns(compact_tools([DeviceProfile("phone", "android", (tool,))]), ["phone"])
    assert turns[-2:] == [
        Message("user", "Open an app (phone): alpha, fast, 7"),
        Message("assistant", 's1=phone.apps.open("alpha","fast",7)'),
    ]
