"""Checks of tool calls against what a device offers, before anything is asked or sent; pure but for jsonschema.

For replies of device agents and for planners' drafts. References (`{{ tasks.a.result }}`) stand for values that do not
exist yet: where one is allowed, it fits any schema.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from starloom.agents.plans import ToolProfile

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_MOST_FAULTS = 3
_REFERENCE_MARK = "{{"


def call_problems(
    tool: str,
    arguments: Mapping[str, Any],
    tools: Sequence[ToolProfile],
    *,
    references: bool = False,
) -> list[str]:
    """Return one line for each thing wrong with a call: an unknown tool, or arguments that do not fit its schema."""
    profile = next((item for item in tools if item.name == tool), None)
    if profile is None:
        return [f"tool: there is no {tool!r}.{_suggestion(tool, [item.name for item in tools])}"]
    return argument_problems(profile, arguments, references=references)


def argument_problems(profile: ToolProfile, arguments: Mapping[str, Any], *, references: bool = False) -> list[str]:
    """Return one line for each argument that does not fit, at most three, with its path."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(profile.input_schema)
    faults = sorted(
        validator.iter_errors(dict(arguments)), key=lambda fault: [str(part) for part in fault.absolute_path]
    )
    lines = [_line(fault) for fault in faults if not (references and _is_about_a_reference(fault))]
    return [f"{profile.name}: {line}" for line in lines[:_MOST_FAULTS]]


def _line(fault: "ValidationError") -> str:
    place = ".".join(str(part) for part in fault.absolute_path) or "arguments"
    return f"{place}: {fault.message[:200]}"


def _is_about_a_reference(fault: "ValidationError") -> bool:
    """Whether the value at fault is a reference, or is built of alternatives and holds one somewhere."""
    if isinstance(fault.instance, str):
        return _REFERENCE_MARK in fault.instance
    return fault.validator in ("anyOf", "oneOf") and _REFERENCE_MARK in str(fault.instance)


def _suggestion(word: str, words: Sequence[str]) -> str:
    near = get_close_matches(word, words, n=1)
    return f" Did you mean {near[0]}?" if near else f" There are: {', '.join(words)}."
