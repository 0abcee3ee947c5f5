"""Examples that show a small model the compact contract: as chat turns, only those that the live tools can play.

Called by `agents.compact_planner`. `{a}` and `{b}` become the names of connected devices. At most nine are shown, the
earlier ones first, for each costs a second of reading. Where the live tools can play few, examples are made up from
their signatures: a model that has only seen refusals refuses. They are no part of any evaluation file.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from starloom.agents.compact_reading import read_arguments
from starloom.agents.compact_tools import UNSUPPORTED, CompactTool, Shape
from starloom.errors import ModelError
from starloom.llm.port import Message


@dataclass(frozen=True, slots=True)
class Example:
    """A request and its plan; one line of `plan` is (device letter, tool, arguments as written)."""

    request: str
    plan: tuple[tuple[str, str, str], ...]


MAX_SHOWN = 9
_FEW = 4
_MADE_UP_VALUES = ("alpha", "beta", "gamma")

EXAMPLES = (
    Example("Book me a flight to Lisbon", ()),
    Example("Which text files are in notes on {b}?", (("b", "files.list", '("notes","*.txt")'),)),
    Example(
        "Write the word hello into hi.txt, copy plan.txt to backup/plan.txt on {b} and run df -h there",
        (
            ("a", "files.write", '("hi.txt","hello")'),
            ("b", "files.copy", '("plan.txt","backup/plan.txt")'),
            ("b", "shell.run", '("df -h")'),
        ),
    ),
    Example("Show the text of offer.pdf", (("a", "pdf.text", '("offer.pdf")'),)),
    Example("Was steht in liste.txt?", (("a", "files.read", '("liste.txt")'),)),
    Example("Print label.png on the printer in the hall", ()),
    Example("pls remvoe draft_2.csv", (("a", "files.delete", '("draft_2.csv")'),)),
    Example(
        "Summarise the invoices of scans/2024 in report.md, then pack report.md into report.zip",
        (
            ("a", "invoices.read", '("scans/2024")'),
            ("a", "reports.write", '([s1],"report.md")'),
            ("a", "files.zip", '(["report.md"],"report.zip")'),
        ),
    ),
    Example(
        "Read the invoices in data/march on {a} and in data/april on {b} and write them to sums.xlsx",
        (
            ("a", "invoices.read", '("data/march")'),
            ("b", "invoices.read", '("data/april")'),
            ("a", "sheets.write", '([s1,s2],"sums.xlsx")'),
        ),
    ),
    Example(
        "Sort people.xlsx by age and write the result to ages.xlsx",
        (
            ("a", "sheets.read", '("people.xlsx")'),
            ("a", "tables.sort", '(s1,"age")'),
            ("a", "sheets.write", '([s2],"ages.xlsx")'),
        ),
    ),
    Example(
        "Translate letter.pdf into Dutch, save it to brief.txt and zip both files into letters.zip",
        (
            ("a", "pdf.text", '("letter.pdf")'),
            ("a", "documents.translate", '(s1,"Dutch")'),
            ("a", "documents.save", '(s2,"brief.txt")'),
            ("a", "files.zip", '(["letter.pdf","brief.txt"],"letters.zip")'),
        ),
    ),
)


def example_turns(tools: Sequence[CompactTool], device_ids: Sequence[str]) -> list[Message]:
    """Return the examples that these tools can play, as user and assistant turns."""
    offered = {tool.name: tool for tool in tools}
    names = {"a": device_ids[0], "b": device_ids[1 % len(device_ids)]}
    played: list[tuple[str, list[str]]] = []
    for example in EXAMPLES:
        if all(_can_play(offered.get(tool), names[letter], written) for letter, tool, written in example.plan):
            calls = [f"{names[letter]}.{tool}{arguments}" for letter, tool, arguments in example.plan]
            played.append((example.request.format(**names), calls))
    made_up = [_made_up(tool) for tool in _unshown(tools, device_ids, played)]
    turns: list[Message] = []
    for request, calls in [*played[: MAX_SHOWN - len(made_up)], *made_up]:
        lines = [f"s{number}={call}" for number, call in enumerate(calls, start=1)]
        turns += [Message("user", request), Message("assistant", "\n".join(lines) or UNSUPPORTED)]
    return turns


def _unshown(
    tools: Sequence[CompactTool], device_ids: Sequence[str], played: Sequence[tuple[str, list[str]]]
) -> list[CompactTool]:
    """Return tools to make examples up for: of each device that no example plays, and more while there are few."""
    calls = [call for _, plan in played for call in plan]
    simple = [tool for tool in tools if _is_simple(tool) and not any(f".{tool.name}(" in call for call in calls)]
    shown = {device for device in device_ids if any(call.startswith(f"{device}.") for call in calls)}
    chosen: list[CompactTool] = []
    for tool in simple:
        if len(chosen) < _FEW and not shown & set(tool.devices):
            chosen.append(tool)
            shown |= set(tool.devices)
    more = [tool for tool in simple if tool not in chosen]
    return chosen + more[: max(0, _FEW - len(chosen) - sum(bool(plan) for _, plan in played))]


def _is_simple(tool: CompactTool) -> bool:
    shapes = [item.shape for item in tool.parameters if item.is_required]
    return bool(shapes) and all(shape in (Shape.TEXT, Shape.INTEGER, Shape.CHOICE) for shape in shapes)


def _made_up(tool: CompactTool) -> tuple[str, list[str]]:
    """Return a request that a tool's summary and some values make, and its plan."""
    values: list[str | int] = []
    for item in (item for item in tool.parameters if item.is_required):
        match item.shape:
            case Shape.INTEGER:
                values.append(7)
            case Shape.CHOICE:
                values.append(item.choices[0])
            case _:
                values.append(_MADE_UP_VALUES[len(values) % len(_MADE_UP_VALUES)])
    given = ", ".join(str(value) for value in values)
    written = ",".join(json.dumps(value, ensure_ascii=False) for value in values)
    return f"{tool.summary} ({tool.devices[0]}): {given}", [f"{tool.devices[0]}.{tool.name}({written})"]


def _can_play(tool: CompactTool | None, device_id: str, written: str) -> bool:
    if tool is None or device_id not in tool.devices:
        return False
    try:
        read_arguments(written, tool)
    except ModelError:
        return False  # the live tool has another signature than the example's
    return True


def example_texts() -> frozenset[str]:
    """Return every quoted value of the examples, to notice when a plan copies one."""
    played = (
        text for example in EXAMPLES for _, _, written in example.plan for text in re.findall(r'"([^"]+)"', written)
    )
    return frozenset([*played, *_MADE_UP_VALUES]) - {"*"}
