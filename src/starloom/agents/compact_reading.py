"""Read a compact reply back into steps, and derive which step must wait for which.

Called by `agents.compact_planner` and `agents.compact_checks`. Pure: text and tools in, values out.
"""

import ast
import json
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from starloom.agents.compact_tools import CompactTool, Parameter
from starloom.errors import ModelError

Json: TypeAlias = Any
Scalar: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an earlier line."""

    line: int


Value: TypeAlias = Scalar | Ref | tuple[Scalar | Ref, ...]


@dataclass(frozen=True, slots=True)
class CompactStep:
    """One line of a reply. `after` is empty until `with_edges` has derived it."""

    line: int
    device_id: str
    tool: CompactTool
    values: dict[str, Value]
    after: tuple[int, ...] = ()

    def places(self, *, made: bool | None = None) -> list[str]:
        """Return the texts that say where: all, only those that it makes, or only those that it reads."""
        found: list[str] = []
        for parameter in self.tool.parameters:
            if not parameter.is_place or parameter.name not in self.values:
                continue
            if made is None or made == (parameter.name in self.tool.outputs):
                found += texts(self.values[parameter.name])
        return found


def texts(value: Value) -> list[str]:
    """Return the strings in a value."""
    items = value if isinstance(value, tuple) else (value,)
    return [item for item in items if isinstance(item, str)]


def references(step: CompactStep) -> list[int]:
    """Return the lines whose results the step takes."""
    found = []
    for value in step.values.values():
        items = value if isinstance(value, tuple) else (value,)
        found += [item.line for item in items if isinstance(item, Ref)]
    return sorted(set(found))


def read_plan(reply: str, tools: Sequence[CompactTool]) -> tuple[CompactStep, ...]:
    """Return the reply's steps in order, without edges.

    Raises:
        ModelError: a line is no call of a known tool on a device that offers it; the grammar rules that out.
    """
    return tuple(read_line(line, number, tools) for number, line in enumerate(reply.strip().split("\n"), start=1))


def read_line(line: str, number: int, tools: Sequence[CompactTool]) -> CompactStep:
    """Return one line's step.

    Raises:
        ModelError: as `read_plan`.
    """
    call = line.strip().removeprefix(f"s{number}=")
    for tool in sorted(tools, key=lambda item: -len(item.name)):
        for device in sorted(tool.devices, key=len, reverse=True):
            head = f"{device}.{tool.name}("
            if call.startswith(head):
                return CompactStep(number, device, tool, read_arguments(call[len(head) - 1 :], tool))
    raise ModelError(f"Line {number} of the plan calls no known tool: {line[:120]!r}.")


def read_arguments(written: str, tool: CompactTool) -> dict[str, Value]:
    """Return the values of a written argument list, `(…)`.

    Raises:
        ModelError: it does not parse, or it does not fit the tool's parameters.
    """
    try:
        call = ast.parse(f"f{written}", mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ModelError(f"The arguments of {tool.name!r} do not parse: {written[:120]!r}.") from error
    if not isinstance(call, ast.Call):
        raise ModelError(f"The arguments of {tool.name!r} are no argument list: {written[:120]!r}.")
    required = [item for item in tool.parameters if item.is_required]
    if len(call.args) != len(required):
        raise ModelError(f"{tool.name!r} takes {len(required)} arguments, not {len(call.args)}: {written[:120]!r}.")
    known = {item.name: item for item in tool.parameters}
    values = {item.name: _value(node, item) for item, node in zip(required, call.args, strict=True)}
    for keyword in call.keywords:
        if keyword.arg not in known:
            raise ModelError(f"{tool.name!r} has no argument {keyword.arg!r}.")
        values[keyword.arg] = _value(keyword.value, known[keyword.arg])
    return values


def _value(node: ast.expr, parameter: Parameter) -> Value:
    if isinstance(node, ast.List):
        return tuple(_scalar(item, parameter) for item in node.elts)
    return _scalar(node, parameter)


def _scalar(node: ast.expr, parameter: Parameter) -> Scalar | Ref:
    match node:
        case ast.Name(id=name) if name[:1] == "s" and name[1:].isdigit():
            return Ref(int(name[1:]))
        case ast.Constant(value=str() | int() | float() | bool() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise ModelError(f"The argument {parameter.name!r} cannot be read.")


def written(step: CompactStep) -> str:
    """Return the line that reads back as the step."""
    required = [_written(step.values[item.name]) for item in step.tool.parameters if item.is_required]
    optional = [
        f"{item.name}={_written(step.values[item.name])}"
        for item in step.tool.parameters
        if not item.is_required and item.name in step.values
    ]
    return f"s{step.line}={step.device_id}.{step.tool.name}({','.join([*required, *optional])})"


def _written(value: Value) -> str:
    match value:
        case tuple():
            return f"[{','.join(map(_written, value))}]"
        case Ref(line):
            return f"s{line}"
        case str():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def with_edges(steps: Sequence[CompactStep]) -> tuple[CompactStep, ...]:
    """Return the steps with the lines that each must wait for, derived and as few as possible.

    A step waits for what it refers to; for an earlier step on its device that touches a file or folder of its own, when
    one of the two changes it; and, around a tool of unknown reach (a command), for its neighbours on the device.
    """
    done: list[CompactStep] = []
    reach: dict[int, set[int]] = {}  # everything that a line waits for, directly or not
    for step in steps:
        wanted = set(references(step))
        wanted |= {earlier.line for earlier in done if _must_follow(step, earlier)}
        direct = {line for line in wanted if not any(line in reach[other] for other in wanted if other != line)}
        direct |= set(references(step))
        reach[step.line] = wanted.union(*(reach[line] for line in wanted))
        done.append(CompactStep(step.line, step.device_id, step.tool, step.values, tuple(sorted(direct))))
    return tuple(done)


def _must_follow(step: CompactStep, earlier: CompactStep) -> bool:
    if step.device_id != earlier.device_id or (step.tool.is_reading and earlier.tool.is_reading):
        return False
    if _is_barrier(step) or _is_barrier(earlier):
        return True
    mine = {normal(place) for place in step.places()}
    others = {normal(place) for place in earlier.places()}
    return any(_overlap(one, other) for one in mine for other in others)


def _is_barrier(step: CompactStep) -> bool:
    """Whether the step may touch anything: it changes something and does not say where."""
    return not step.tool.is_reading and not step.places()


def normal(place: str) -> str:
    """Return a path in one spelling; addresses keep theirs."""
    return place if "://" in place else posixpath.normpath(place.replace("\\", "/"))


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/") or "." in (one, other)


def plain(value: Value, step_ids: dict[int, str]) -> Json:
    """Return the value as a JSON argument; references in the constellation's notation."""
    if isinstance(value, tuple):
        return [plain(item, step_ids) for item in value]
    if isinstance(value, Ref):
        return f"{{{{ tasks.{step_ids[value.line]}.result }}}}"
    return value
