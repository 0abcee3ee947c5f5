"""Examples that show a small model the compact contract: as chat turns, only those that the live tools can play.

Called by `agents.compact_planner`. `{a}` and `{b}` become the names of connected devices. At most six are shown, the
earlier ones first, for each costs a second of reading. They are no part of any evaluation file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starloom.agents.compact_grammar import UNSUPPORTED, CompactTool
from starloom.agents.compact_reading import read_arguments
from starloom.errors import ModelError
from starloom.llm.port import Message


@dataclass(frozen=True, slots=True)
class Example:
    """A request and its plan; one line of `plan` is (device letter, tool, arguments as written)."""

    request: str
    plan: tuple[tuple[str, str, str], ...]


MAX_SHOWN = 6

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
    turns: list[Message] = []
    for example in EXAMPLES:
        if len(turns) < 2 * MAX_SHOWN and all(
            _can_play(offered.get(tool), names[letter], written) for letter, tool, written in example.plan
        ):
            lines = [
                f"s{number}={names[letter]}.{tool}{arguments}"
                for number, (letter, tool, arguments) in enumerate(example.plan, start=1)
            ]
            turns.append(Message("user", example.request.format(**names)))
            turns.append(Message("assistant", "\n".join(lines) or UNSUPPORTED))
    return turns


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
    return frozenset(
        text for example in EXAMPLES for _, _, written in example.plan for text in re.findall(r'"([^"]+)"', written)
    ) - {"*"}
