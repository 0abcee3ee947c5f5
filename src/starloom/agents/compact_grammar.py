"""What the next line of a compact plan may be, as a GBNF grammar from live tools, the request and the lines before.

Called by `agents.compact_drafting`, once a line. A line can only name what the request gives or an earlier line made,
of the kind that the tool is for; refer to an earlier line whose result fits; and call a device that offers the tool.
A tool that finds nothing of its kind in the request is not offered. `unsupported()` is offered as the first line.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from starloom.agents.compact_names import (
    PATH_WORDS,
    PATTERN_WORDS,
    candidates,
    ending,
    folders_said,
    has_ideographs,
    is_folder,
    reads_a_named_file,
    spans,
)
from starloom.agents.compact_tools import REFERRING, UNSUPPORTED, CompactTool, Parameter, Shape

_COMMANDING = re.compile(  # else a small model adds an "echo" or a "cat" to a plan that is complete
    r"\b(run|runs|execute|command|script|shell|start|launch|ausführen|führe|starte|ejecuta|corre|lance|exécute)\b|[`\"“]"
    r"|运行|执行|命令",
    re.IGNORECASE,
)
_MAX_JOINED = 40  # folders, and files, that are offered joined to a path
_STABLE_RULES = (
    r'text ::= "\"" char{1,400} "\""',
    r'char ::= [^"\\\x00-\x1f] | "\\" ["\\nt]',
    r'pattern ::= "\"" mark{0,40} "*" mark{0,40} "\""',
    r'mark ::= [^"\\\x00-\x20]',
    r'unspaced ::= "\"" [^\x00-\x7f] [^\x00-\x2c:-@\x5b-\x60]{0,60} "\""',
    'integer ::= "-"? ("0" | [1-9] [0-9]{0,11})',
    'number ::= integer ("." [0-9]{1,6})?',
    'flag ::= "True" | "False"',
)


class Kind(StrEnum):
    """What a line's result is, or an argument refers to, where the tool says it."""

    TABLE = "table"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Results:
    """The earlier lines that have a result, and of which kind; None: of any."""

    kinds: Mapping[int, Kind | None] = field(default_factory=dict)

    def fitting(self, parameter: Parameter) -> list[int]:
        """Return the lines that the argument may refer to."""
        wanted = kind_of_argument(parameter)
        return [line for line, kind in self.kinds.items() if wanted is None or kind is None or kind is wanted]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a line is held to. `made`: places of earlier lines; banned is what earlier tries of this line had wrong.

    `device_id`: the only device that it may use; None: any that offers the tool.
    """

    line: int
    request: str
    device_id: str | None = None
    results: Results = Results()
    made: tuple[str, ...] = ()
    banned_tools: frozenset[str] = frozenset()
    banned_names: frozenset[str] = frozenset()
    may_refuse: bool = False


def kind_of_argument(parameter: Parameter) -> Kind | None:
    """Return what the argument's name says of the results that it takes."""
    name = parameter.name.lower()
    if name.startswith(("table", "row")):
        return Kind.TABLE
    return Kind.TEXT if name.startswith("text") else None


def kind_of_result(tool: CompactTool) -> Kind | None:
    """Return what the tool's result is, as far as its summary and what it refers to say."""
    summary = tool.summary.lower()
    taken = [item for item in tool.parameters if item.shape in REFERRING]
    if taken:
        return kind_of_argument(taken[0])
    if re.search(r"\bas an? table\b", summary):
        return Kind.TABLE
    return Kind.TEXT if re.search(r"\bthe text of\b|\ba text file\b", summary) else None


def line_grammar(tools: Sequence[CompactTool], bounds: Bounds) -> str | None:
    """Return the grammar of one line, with or without a line break after it; without: the plan ends there.

    None: no tool could be meant.
    """
    verbs = {tool.name.rpartition(".")[2] for tool in tools}
    arguments = {item.name for tool in tools for item in tool.parameters}
    lines = _Rules(bounds, verbs | arguments)
    is_command_said = bounds.line == 1 or _COMMANDING.search(bounds.request) is not None
    calls = [
        call
        for tool in tools
        if tool.name not in bounds.banned_tools and (bounds.device_id or tool.devices[0]) in tool.devices
        if is_command_said or not tool.takes_a_command
        if (call := lines.call(tool)) is not None
    ]
    start = f"s{bounds.line}=" + (bounds.device_id or "")
    rest = terminal(start[len(line_head(bounds)) :])
    if not calls:
        return None
    refusal = f'"{UNSUPPORTED}" | ' if bounds.may_refuse else ""
    return "\n".join(
        [f"root ::= {refusal}{rest} ({' | '.join(calls)}) end", r'end ::= "\n"?', *_STABLE_RULES, *lines.named, ""]
    )


def line_head(bounds: Bounds) -> str:
    """Return how the line surely begins, so that the model need not write it; empty where a refusal is possible."""
    return "" if bounds.may_refuse else f"s{bounds.line}" + (f"={bounds.device_id}" if bounds.device_id else "")


class _Rules:
    """The rules of one grammar as they are needed; equal lists of names share one."""

    def __init__(self, bounds: Bounds, terms: Collection[str]) -> None:
        self._bounds = bounds
        self._folders = folders_said(bounds.request)[:_MAX_JOINED]
        given = (name for name in spans(bounds.request) if name.casefold() not in terms or name in self._folders)
        self._names = list(dict.fromkeys([*bounds.made, *given]))
        self._by_body: dict[str, str] = {}

    @property
    def named(self) -> list[str]:
        return [f"{name} ::= {body}" for body, name in self._by_body.items()]

    def call(self, tool: CompactTool) -> str | None:
        """Return the alternative of a tool; None when nothing in sight fits one of its arguments."""
        owners = () if self._bounds.device_id else tool.devices
        parts = [f"({' | '.join(map(terminal, owners))})"] * bool(owners) + [terminal(f".{tool.name}(")]
        required = [item for item in tool.parameters if item.is_required]
        for position, item in enumerate(required):
            value = self._value(tool, item)
            if value is None:
                return None
            parts += ['","'] * bool(position) + [value]
        for item in tool.parameters:
            value = None if item.is_required else self._value(tool, item)
            if value is not None:
                parts.append(f'("," {terminal(item.name + "=")} {value})?')
        return self._rule(" ".join([*parts, '")"']))

    def _value(self, tool: CompactTool, item: Parameter) -> str | None:
        match item.shape:
            case Shape.REFERENCE:
                return self._references(item)
            case Shape.REFERENCES:
                one = self._references(item)
                return one and f'"[" {one} ("," {one}){{0,9}} "]"'
            case Shape.TEXTS:
                one = self._text(tool, item)
                return one and f'"[" {one} ("," {one}){{0,19}} "]"'
            case Shape.TEXT:
                return self._text(tool, item)
            case Shape.CHOICE:
                return self._rule(" | ".join(terminal(_quoted(choice)) for choice in item.choices))
            case Shape.INTEGER:
                numbers = re.findall(r"(?<![\w.])\d{1,9}(?![\w.]*\w)", self._bounds.request)
                given = dict.fromkeys(str(int(number)) for number in numbers)
                return self._rule(" | ".join(map(terminal, given))) if given else "integer"
            case _:
                return item.shape.value

    def _references(self, item: Parameter) -> str | None:
        lines = self._bounds.results.fitting(item)
        return self._rule(" | ".join(f'"s{line}"' for line in lines)) if lines else None

    def _text(self, tool: CompactTool, item: Parameter) -> str | None:
        if item.name.lower() in PATTERN_WORDS:
            return "pattern"
        return self._place(tool, item) if item.is_place else "text"

    def _place(self, tool: CompactTool, item: Parameter) -> str | None:
        banned = set(self._bounds.banned_names)
        if item.name in tool.outputs and item.name in PATH_WORDS and tool.is_making and self._bounds.device_id:
            banned |= set(self._bounds.made)  # where several devices may be meant, each may make its own
        given = candidates(tool, item, [name for name in self._names if name not in banned])
        ways = [terminal(_quoted(name)) for name in given]
        if not is_folder(item):
            ways += self._joined(given)
        if has_ideographs(self._bounds.request) and not reads_a_named_file(tool, item, self._names):
            ways.append("unspaced")
        return self._rule(" | ".join(ways)) if ways else None

    def _joined(self, given: Sequence[str]) -> list[str]:
        """Return the rule of a file in a folder, when the request may name them apart."""
        made = self._bounds.made
        files = [name for name in given if ending(name) and "/" not in name and name not in made][:_MAX_JOINED]
        if not files or not self._folders:
            return []
        written = [
            self._rule(" | ".join(terminal(_inside(name)) for name in names)) for names in (self._folders, files)
        ]
        return [self._rule(rf'"\"" {written[0]} "/" {written[1]} "\""')]

    def _rule(self, body: str) -> str:
        return self._by_body.setdefault(body, f"r{len(self._by_body)}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _inside(text: str) -> str:
    return _quoted(text)[1:-1].rstrip("/")


def terminal(text: str) -> str:
    """Return the text as a quoted GBNF terminal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
