"""The compact contract of small planners: which live tools fit it, and the prompt that explains it.

Called by every other `compact_` module. A reply is a few lines, one call a line, and nothing else:

    s1=hub.invoices.read("examples/north")          device.tool(required arguments in the schema's order)
    s2=branch.files.list("logs",pattern="*.txt")    optional ones by name, after them
    s3=hub.sheets.write([s1],"totals.xlsx")         references only to earlier lines

There is no list of dependencies: edges are derived. `unsupported()` alone is a refusal. What the next line may be is
`compact_grammar`'s. Source: reference llm.md 2.3; ours: numbered lines.
"""

import json
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from starloom.agents.plans import DeviceProfile, ToolProfile
from starloom.safety.policy import Risk

MAX_STEPS = 10
_MANY = 12
_LONGEST_ABOUT = 60
UNSUPPORTED = "unsupported()"

_PLACE_WORDS = {
    *("path", "paths", "file", "files", "folder", "folders", "directory", "source", "sources", "destination", "target"),
    *("output", "archive", "url", "address", "to", "host", "recipient", "recipients"),
}
COMMAND_WORDS = {"command", "script", "code", "query", "expression"}  # they say what to do, not where
_OUTPUT_WORDS = ("destination", "target", "output", "archive", "path", "to", "folder", "file", "url")


class Shape(StrEnum):
    """What an argument looks like in a reply."""

    REFERENCE = "reference"
    REFERENCES = "references"
    TEXT = "text"
    TEXTS = "texts"
    CHOICE = "choice"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"


REFERRING = (Shape.REFERENCE, Shape.REFERENCES)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool. `is_place`: its text says where something is, so it must come from the request."""

    name: str
    shape: Shape
    is_required: bool
    is_place: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactTool:
    """A tool that fits the contract, and the devices that offer it with this very signature."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    devices: tuple[str, ...]
    risk: Risk | None
    outputs: tuple[str, ...]  # names of the arguments whose file or folder the tool makes

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing."""
        return self.risk is Risk.READ

    @property
    def takes_a_command(self) -> bool:
        """Whether an argument says what to do in a language of its own."""
        return any(item.name in COMMAND_WORDS for item in self.parameters)

    @property
    def is_making(self) -> bool:
        """Whether it makes a file from something else, rather than changing the one that it names."""
        others = [item for item in self.parameters if item.name not in self.outputs and item.is_required]
        return bool(self.outputs) and any(item.is_place or item.shape in REFERRING for item in others)

    @property
    def signature(self) -> str:
        """The call as the prompt shows it."""
        shown = [item.name if item.is_required else f"{item.name}=…" for item in self.parameters]
        return f"{self.name}({', '.join(shown)})"


def compact_tools(devices: Sequence[DeviceProfile]) -> tuple[CompactTool, ...]:
    """Return the tools that a small model can be offered, in the order in which the devices name them.

    A tool with a required argument that the contract cannot express (an object, say) is left out. Where all arguments
    are optional they are all written, so that a model need not choose; optional numbers and flags keep their defaults.
    """
    grouped: dict[str, tuple[ToolProfile, list[str]]] = {}
    for device in devices:
        for tool in device.tools:
            key = tool.name + json.dumps(tool.input_schema, sort_keys=True)
            grouped.setdefault(key, (tool, []))[1].append(device.device_id)
    found = (_compact(tool, tuple(owners)) for tool, owners in grouped.values())
    return tuple(tool for tool in found if tool is not None)


def _compact(tool: ToolProfile, devices: tuple[str, ...]) -> CompactTool | None:
    properties: dict[str, Any] = tool.input_schema.get("properties", {})
    required = set(tool.input_schema.get("required", ()))
    parameters: list[Parameter] = []
    for name, schema in properties.items():
        parameter = _parameter(name, schema, name in required or not required, tool)
        if parameter is None and name in required:
            return None
        if parameter is not None and (parameter.is_required or _can_be_named(parameter)):
            parameters.append(parameter)
    parameters.sort(key=lambda item: not item.is_required)
    return CompactTool(
        tool.name, _first_sentence(tool.description), tuple(parameters), devices, tool.risk, _outputs(tool, parameters)
    )


def _can_be_named(parameter: Parameter) -> bool:
    """Whether an optional argument is offered: it needs a name that reads as one, and is a text or a choice."""
    is_name = parameter.name.isidentifier() and not keyword.iskeyword(parameter.name)
    return is_name and parameter.shape in (Shape.TEXT, Shape.CHOICE)


def _parameter(name: str, schema: dict[str, Any], is_required: bool, tool: ToolProfile) -> Parameter | None:
    variants = sorted((item for item in schema.get("anyOf", ()) if item.get("type") != "null"), key=_plainness)
    if variants:
        schema = {**variants[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
    kind = schema.get("type")
    items = schema.get("items") or {}
    is_reference = schema.get("x-reference") or items.get("x-reference")
    is_place = name.lower() in _PLACE_WORDS or (name in tool.destinations and name not in COMMAND_WORDS)
    if is_reference:
        return Parameter(name, Shape.REFERENCES if kind == "array" else Shape.REFERENCE, is_required)
    choices = schema.get("enum")
    if choices and all(isinstance(item, str) for item in choices):
        return Parameter(name, Shape.CHOICE, is_required, choices=tuple(choices))
    if kind == "array" and items.get("type") == "string":
        return Parameter(name, Shape.TEXTS, is_required, is_place)
    if kind == "string":
        return Parameter(name, Shape.TEXT, is_required, is_place)
    simple = {"integer": Shape.INTEGER, "number": Shape.NUMBER, "boolean": Shape.FLAG}
    return Parameter(name, simple[kind], is_required) if kind in simple else None


def _plainness(schema: dict[str, Any]) -> bool:
    """Order the variants of an argument: text first."""
    return schema.get("type") != "string"


def _outputs(tool: ToolProfile, parameters: Iterable[Parameter]) -> tuple[str, ...]:
    if tool.risk is Risk.READ:
        return ()
    places = [item.name for item in parameters if item.is_place and item.shape is Shape.TEXT]
    told = [name for name in places if name in tool.destinations] or places
    return tuple([name for name in _OUTPUT_WORDS if name in told][:1])


def _first_sentence(description: str) -> str:
    text = " ".join(description.split())
    sentence = re.split(r"(?<=[.!?:;])\s", text, maxsplit=1)[0].rstrip(".:;")
    return sentence if len(sentence) <= 80 else sentence[:77].rsplit(" ", 1)[0] + "…"


def narrowed(tools: Sequence[CompactTool], device_ids: Sequence[str]) -> tuple[CompactTool, ...]:
    """Return the tools with only these devices, where they offer the tool; else with those that do."""
    return tuple(
        replace(tool, devices=tuple(item for item in tool.devices if item in device_ids) or tool.devices)
        for tool in tools
    )


def shortlisted(tools: Sequence[CompactTool], request: str, *, limit_bytes: int) -> tuple[CompactTool, ...]:
    """Return as many tools as fit the prompt, in their order: all, or those that share most words with the request."""
    if sum(map(_size_bytes, tools)) <= limit_bytes:
        return tuple(tools)
    asked = _stems(request)
    by_likeness = sorted(tools, key=lambda tool: -len(asked & _stems(f"{tool.name} {tool.signature} {tool.summary}")))
    chosen: list[CompactTool] = []
    left = limit_bytes
    for tool in by_likeness:
        left -= _size_bytes(tool)
        if left >= 0:
            chosen.append(tool)
    return tuple(tool for tool in tools if tool in chosen)


def _size_bytes(tool: CompactTool) -> int:
    return len(f"{tool.signature}: {tool.summary}".encode()) + 20


def _stems(text: str) -> set[str]:
    return {word[:5] for word in re.findall(r"\w{3,}", text.replace("_", " ").casefold())}


def system_prompt(tools: Sequence[CompactTool], devices: Sequence[DeviceProfile]) -> str:
    """Return the stable instructions: the form, the devices and one line a tool."""
    names = [f"{item.device_id} ({(item.description or item.device_type)[:_LONGEST_ABOUT]})" for item in devices]
    everywhere = tuple(item.device_id for item in devices)
    lines = []
    for tool in tools:
        owners = "" if tool.devices == everywhere else f" [only on {_few(tool.devices)}]"
        lines.append(f"{tool.signature}: {tool.summary}{owners}")
    return "\n".join(
        [
            "Turn the request into a plan: one call per line, s1=device.tool(arguments), nothing else.",
            "Use only names, paths and addresses that the request gives. Do every part of the request, no more.",
            f"Answer {UNSUPPORTED} when no tool can do it.",
            f"Devices: {_few(names)}. Without a device's name in the request: {everywhere[0]}.",
            "Tools:",
            *lines,
        ]
    )


def _few(names: Sequence[str]) -> str:
    """Return the names, or the first of very many: the grammar, not the prompt, says which device offers what."""
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more
