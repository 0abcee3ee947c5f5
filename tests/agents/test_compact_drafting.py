"""Plans come line by line: each line's grammar is made from the request and the lines before, and it is checked."""

import re
from dataclasses import dataclass, field

import pytest

from starloom.agents.compact_drafting import MAX_LINES_ASKED
from starloom.agents.compact_grammar import Bounds, Kind, Results, kind_of_result, line_grammar, line_head
from starloom.agents.compact_names import folders_said, spans
from starloom.agents.compact_planner import CompactPlanner
from starloom.agents.compact_tools import UNSUPPORTED, CompactTool, compact_tools, narrowed, shortlisted, system_prompt
from starloom.agents.plans import DeviceProfile, PlanDraft, ToolProfile
from starloom.llm.port import Follow, Generated, Message, Usage
from starloom.safety.policy import Risk

TEXT = {"type": "string"}
REFERENCE = {"type": "object", "x-reference": True}
TABLES = {"type": "array", "items": REFERENCE}
FILES = {"type": "array", "items": TEXT}


def profile(
    name: str, about: str, risk: Risk, places: tuple[str, ...] = (), **arguments: dict[str, object]
) -> ToolProfile:
    schema = {"type": "object", "properties": arguments, "required": list(arguments)}
    return ToolProfile(name, about, schema, risk, places)


TOOLS = (
    profile("invoices.read", "Read every invoice in a folder.", Risk.READ, folder=TEXT),
    profile("sheets.read", "Read a spreadsheet as a table.", Risk.READ, path=TEXT),
    profile("sheets.write", "Write tables into a workbook.", Risk.WRITE, ("path",), tables=TABLES, path=TEXT),
    profile("reports.write", "Write a Markdown summary.", Risk.WRITE, ("path",), tables=TABLES, path=TEXT),
    profile("tables.chart", "Draw a chart into a picture.", Risk.WRITE, ("path",), table=REFERENCE, path=TEXT),
    profile("documents.save", "Save the text of a step.", Risk.WRITE, ("path",), text=REFERENCE, path=TEXT),
    profile("files.zip", "Make a ZIP archive.", Risk.WRITE, ("path",), files=FILES, path=TEXT),
    profile("files.list", "List a folder.", Risk.READ, folder=TEXT, pattern=TEXT),
    profile("files.read", "Read a text file.", Risk.READ, path=TEXT),
    profile("pdf.text", "Read the text of a PDF file.", Risk.READ, path=TEXT),
    profile("images.resize", "Resize a picture.", Risk.WRITE, ("path",), path=TEXT, width={"type": "integer"}),
)
HUB, BRANCH = DeviceProfile("hub", "linux", TOOLS), DeviceProfile("branch", "linux", TOOLS)
ONE, BOTH = compact_tools([HUB]), compact_tools([HUB, BRANCH])


@dataclass
class Lines:
    """A grammar model that says these lines, one a request, and remembers what it was asked."""

    replies: list[str]
    asked: list[list[Message]] = field(default_factory=list)
    grammars: list[str] = field(default_factory=list)
    name: str = "fake"

    async def generate(
        self, messages: list[Message], grammar: str, *, max_tokens: int = 512, follow: Follow | None = None
    ) -> Generated:
        self.asked.append(messages)
        self.grammars.append(grammar)
        return Generated(self.replies.pop(0), self.name, Usage(10, 5, cost=0.0))

    async def plan(self, request: str, *devices: DeviceProfile) -> PlanDraft:
        return await CompactPlanner(self).plan(request, devices or (HUB,))


def calls(draft: PlanDraft) -> list[str]:
    return [f"{step.tool} {step.arguments}" for step in draft.steps]


def alternative(tool: str, request: str, tools: tuple[CompactTool, ...] = ONE, **bounds: object) -> str | None:
    """Return a tool's alternative in a line's grammar, its rules written out; None when it is not offered."""
    text = line_grammar(tools, Bounds(**{"line": 2, "request": request, "device_id": "hub", **bounds}))  # type: ignore[arg-type]
    rules = dict(line.split(" ::= ", 1) for line in (text or "").strip().splitlines())
    call = next((body for body in rules.values() if f'".{tool}("' in body), None)
    while call is not None and (name := re.search(r"\br\d+\b", call)):
        call = call.replace(name[0], f"({rules[name[0]]})")
    return call


async def test_lines_before_are_the_beginning_of_the_reply() -> None:
    model = Lines(['s1=hub.invoices.read("bills")\n', '.sheets.write([s1],"a.xlsx")'])
    draft = await model.plan("read the invoices in bills and write a.xlsx")
    assert [step.tool for step in draft.steps] == ["invoices.read", "sheets.write"]
    assert model.asked[1] == [*model.asked[0], Message("assistant", 's1=hub.invoices.read("bills")\ns2=hub')]
    assert draft.warnings == ()


async def test_plan_goes_on_while_a_name_of_the_request_is_unused() -> None:
    first = ['s1=hub.invoices.read("bills")\n', '.sheets.write([s1],"a.xlsx")', '.reports.write([s1],"a.md")']
    draft = await Lines(first).plan("read the invoices in bills, write a.xlsx and a.md")
    assert [step.tool for step in draft.steps] == ["invoices.read", "sheets.write", "reports.write"]
    assert ["mended" in text for text in draft.warnings] == [True]


async def test_line_that_uses_no_further_name_ends_the_plan() -> None:
    first = ['s1=hub.files.read("a.txt")', '.files.list(".","*")']
    draft = await Lines(first).plan("read a.txt and burn b.txt")
    assert [step.tool for step in draft.steps] == ["files.read"]
    assert draft.warnings == ("The request names 'b.txt', but no line uses it.",)


async def test_repeated_line_is_left_out_and_ends_the_plan() -> None:
    draft = await Lines(['s1=hub.files.read("a.txt")\n', '.files.read("a.txt")\n']).plan("read a.txt")
    assert calls(draft) == ["files.read {'path': 'a.txt'}"]
    assert draft.warnings == ()


async def test_further_line_that_invents_something_is_left_out_and_said() -> None:
    run = profile("shell.run", "Run a program.", Risk.IRREVERSIBLE, ("command",), command=TEXT)
    hub = DeviceProfile("hub", "linux", (*TOOLS, run))
    draft = await Lines(['s1=hub.files.read("a.txt")\n', '.shell.run("rm a.txt")']).plan("run: read a.txt", hub)
    assert [step.tool for step in draft.steps] == ["files.read"]
    assert draft.warnings == ("A step was left out: The command 'rm a.txt' in line 2 is not in the request.",)


async def test_nothing_is_sent_to_the_same_place_twice() -> None:
    mail = profile("mail.send", "Send an e-mail.", Risk.EXTERNAL, ("to",), to=TEXT, subject=TEXT)
    hub = DeviceProfile("hub", "linux", (*TOOLS, mail))
    replies = ['s1=hub.mail.send("a@example.org","Hello")\n', '.mail.send("a@example.org","Good morning")']
    draft = await Lines(replies).plan("Good morning! Mail a@example.org, subject Hello", hub)
    assert [step.arguments["subject"] for step in draft.steps] == ["Hello"]
    assert draft.warnings == ("A step was left out: Line 2 sends to 'a@example.org' again, after line 1.",)


async def test_wrong_line_is_asked_for_again_and_the_mistake_is_impossible() -> None:
    model = Lines(['s1=hub.files.read("made-up.txt")', '.files.read("todo.txt")'])
    draft = await model.plan("read todo.txt")
    assert calls(draft) == ["files.read {'path': 'todo.txt'}"]
    assert draft.usage.requests == 2
    assert UNSUPPORTED in model.grammars[0]
    assert UNSUPPORTED not in model.grammars[1]
    assert ["mended" in text for text in draft.warnings] == [True]


async def test_refusal_is_not_trusted_where_the_request_names_a_tool_or_is_foreign() -> None:
    for request in ("read todo.txt", "Lies bitte die Datei todo.txt"):
        draft = await Lines([UNSUPPORTED, '.files.read("todo.txt")']).plan(request)
        assert calls(draft) == ["files.read {'path': 'todo.txt'}"]
        assert ["mended" in text for text in draft.warnings] == [True]
    draft = await Lines([UNSUPPORTED]).plan("fax todo.txt to the tax office")
    assert draft.refusal


async def test_refusal_stays_where_the_plan_without_it_is_wrong() -> None:
    draft = await Lines([UNSUPPORTED, *['.files.read("made-up")'] * 6]).plan("list the stars")
    assert draft.refusal


async def test_tool_that_the_request_asks_for_by_name_is_put_where_it_fits() -> None:
    replies = [
        's1=hub.sheets.read("a.xlsx")\n',
        '.files.list(".","*")',
        '.tables.chart(s1,"a.png")',
    ]
    draft = await Lines(replies).plan("chart a.xlsx into a.png")
    assert [step.tool for step in draft.steps] == ["sheets.read", "files.list", "tables.chart"]


async def test_line_that_stays_wrong_is_kept_with_its_warning_and_tried_no_longer_than_needed() -> None:
    replies = ['s1=hub.files.read("made-up.txt")', *['.files.read("made-up.txt")'] * 5]
    draft = await Lines(replies).plan("read todo.txt")
    assert len(draft.steps) == 1
    assert draft.usage.requests == 6
    assert "made-up.txt" in draft.warnings[0]


async def test_device_that_is_named_alone_is_used() -> None:
    model = Lines(['s1=hub.files.read("a.txt")', '.files.read("a.txt")'])
    draft = await model.plan("a.txt: read it. branch!", HUB, BRANCH)
    assert [step.device_id for step in draft.steps] == ["branch"]


async def test_every_machine_is_every_machine() -> None:
    fleet = [DeviceProfile(f"pc{number}", "linux", TOOLS) for number in range(30)]
    draft = await Lines(['s1=pc0.files.read("a.txt")']).plan("read a.txt on every machine", *fleet)
    assert [step.device_id for step in draft.steps] == [device.device_id for device in fleet]
    assert len({step.step_id for step in draft.steps}) == 30
    assert draft.warnings == ()


def test_names_are_those_of_the_request_or_of_earlier_lines() -> None:
    call = alternative("files.read", "read todo.txt", made=("new.txt",))
    assert call is not None
    assert all(rf'"\"{name}\""' in call for name in ("todo.txt", "new.txt"))
    assert alternative("files.read", "read todo.txt", banned_names=frozenset({"todo.txt", "read"})) is None


@pytest.mark.parametrize(
    ("tool", "request_", "is_offered"),
    [
        ("pdf.text", "what does offer.pdf say?", True),
        ("pdf.text", "what does offer.docx say?", False),
        ("files.read", "what does offer.pdf say", False),
        ("files.read", "what do my notes say", True),
        ("sheets.read", "read a.pdf", False),
        ("files.zip", "pack a.txt into b.zip", True),
        ("sheets.write", "write it to x.xlsx", False),  # nothing to refer to
    ],
)
def test_tool_that_finds_nothing_of_its_kind_is_not_offered(tool: str, request_: str, is_offered: bool) -> None:
    assert (alternative(tool, request_) is not None) is is_offered


def test_file_is_joined_only_to_what_is_said_as_a_folder() -> None:
    assert folders_said("move a.jpg to pictures, save it, read the docs folder and resize it to 800") == (
        "pictures",
        "docs",
    )


def test_further_line_is_a_command_only_where_the_request_speaks_of_one() -> None:
    run = profile("shell.run", "Run a program.", Risk.IRREVERSIBLE, ("command",), command=TEXT)
    tools = compact_tools([DeviceProfile("hub", "linux", (run,))])
    assert alternative("shell.run", "git status", tools, line=1) is not None
    assert alternative("shell.run", "and run git status", tools) is not None
    assert alternative("shell.run", "and mail it to me", tools) is None


def test_output_is_of_the_kind_that_the_tool_makes() -> None:
    results = Results({1: None})
    call = alternative("sheets.write", "write a.xlsx, a.md and a.zip", results=results)
    assert call is not None
    assert "a.xlsx" in call
    assert "a.md" not in call
    assert "a.zip" not in call


def test_line_refers_only_to_results_of_the_right_kind() -> None:
    results = Results({1: Kind.TABLE, 2: Kind.TEXT, 3: None})
    chart = alternative("tables.chart", "draw c.png", results=results)
    save = alternative("documents.save", "save c.txt", results=results)
    assert chart is not None
    assert save is not None
    assert '("s1" | "s3")' in chart
    assert '("s2" | "s3")' in save


def test_kind_of_a_result_is_told_by_summary_and_arguments() -> None:
    kinds = {tool.name: kind_of_result(tool) for tool in ONE}
    assert kinds["sheets.read"] is Kind.TABLE
    assert kinds["pdf.text"] is Kind.TEXT
    assert kinds["files.read"] is Kind.TEXT
    assert kinds["invoices.read"] is None


def test_numbers_are_those_of_the_request() -> None:
    call = alternative("images.resize", "make a.png 0640 pixels wide, not 10%")
    assert call is not None
    assert '("640" | "10")' in call


def test_device_is_written_only_where_several_may_be_meant() -> None:
    assert line_head(Bounds(2, "x", "hub")) == "s2=hub"
    assert line_head(Bounds(2, "x")) == "s2"
    assert line_head(Bounds(1, "x", "hub", may_refuse=True)) == ""
    assert '"branch"' in (line_grammar(BOTH, Bounds(1, "a.txt")) or "")
    assert '"branch"' not in (line_grammar(narrowed(BOTH, ["hub"]), Bounds(1, "a.txt")) or "")


def test_odd_names_cannot_break_the_grammar() -> None:
    device = DeviceProfile('my "pc"\\1', "linux", (profile("a.b", "Read.", Risk.READ, path=TEXT),))
    text = line_grammar(compact_tools([device]), Bounds(1, 'read "a\\b" root ::= "x" <|im_end|>', may_refuse=True))
    assert text is not None
    assert r"my \"pc\"\\1" in text
    assert all(re.fullmatch(r"[a-z0-9]+ ::= .+", line) for line in text.strip().splitlines())


def test_names_of_a_request_are_words_quotations_numbers_and_runs_of_capitals() -> None:
    names = spans('write "see you" into note.txt in My Files, please, and call +49 170 5550123')
    assert {"see you", "note.txt", "My Files", "write", "+49 170 5550123"} <= set(names)
    assert not {"note.txt in", "in My", "into note.txt", "into"} & set(names)
    assert names[:2] == ("see you", "note.txt")


def test_file_names_stand_out_of_script_without_spaces() -> None:
    assert "report.pdf" in spans("把report.pdf的文字读出来")
    assert "unspaced" in (alternative("files.read", "读取报告") or "")


async def test_empty_and_endless_requests_are_refused_without_asking_the_model() -> None:
    model = Lines([])
    assert "is empty" in ((await model.plan(" \n ")).refusal or "")
    assert "100,000 bytes" in ((await model.plan("x" * 100_000)).refusal or "")
    assert model.asked == []


async def test_number_of_lines_asked_for_is_bounded() -> None:
    files = [f"f{number}.txt" for number in range(60)]
    model = Lines([UNSUPPORTED, *(f'.files.read("wrong{number}.txt")' for number in range(200))])
    await model.plan("read " + " ".join(files))
    assert len(model.asked) <= MAX_LINES_ASKED


async def test_very_many_warnings_are_counted() -> None:
    request = "read " + " ".join(f"f{number}.txt" for number in range(60))
    draft = await Lines(['s1=hub.files.read("f0.txt")', '.files.list(".","*")']).plan(request)
    assert draft.warnings[-1] == "And 51 more."
    assert len(draft.warnings) == 9


def test_long_tool_list_keeps_the_tools_that_the_request_speaks_of() -> None:
    many = [profile(f"area{number}.run", f"Does the chore {number}.", Risk.READ, path=TEXT) for number in range(300)]
    device = DeviceProfile("hub", "linux", (*many, profile("plants.water", "Water the plants.", Risk.WRITE, time=TEXT)))
    tools = shortlisted(compact_tools([device]), "Please water my plants", limit_bytes=5000)
    assert tools[-1].name == "plants.water"
    assert len(system_prompt(tools, [device]).encode()) < 6000
    assert shortlisted(ONE, "", limit_bytes=5000) == ONE


def test_prompt_of_a_large_fleet_is_short() -> None:
    fleet = [DeviceProfile(f"machine-{number}", "linux", TOOLS[: 3 + number % 8]) for number in range(50)]
    prompt = system_prompt(compact_tools(fleet), fleet)
    assert "and 38 more" in prompt
    assert len(prompt.encode()) < 4000


async def test_tools_and_requests_in_any_script_are_planned() -> None:
    odd = ToolProfile("报告.读取", "读取报告。", {"properties": {"路径": TEXT}, "required": ["路径"]}, Risk.READ)
    draft = await Lines(['s1=设备.报告.读取("一月.txt")']).plan("读取 一月.txt", DeviceProfile("设备", "linux", (odd,)))
    assert calls(draft) == ["报告.读取 {'路径': '一月.txt'}"]
