"""Thinking and calls that a model marks in its text: what to drop, and the payload of the one call.

Called by `llm.replies`. Pure, and linear in the text: each mark is looked at once, so no reply can hold up the reader.

    dropped   <think>…</think> and its cousins · [THINK]…[/THINK] · ◁think▷…◁/think▷ · harmony's analysis channel
    payload   <tool_call>{…}</tool_call> and its cousins · [TOOL_CALLS]{…} · <function=name>{…}</function>
    elements  <invoke name="…"><parameter name="…">…   <function=…><parameter=…>…   <arg_key>…</arg_key><arg_value>…
"""

import itertools
import re
from typing import Any, TypeAlias

from starloom.llm.lenient_json import NotJsonError, parse_value

Json: TypeAlias = Any

_NAMES = "think|thinking|thought|thoughts|reasoning|reason|reflection|analysis|scratchpad|antThinking|seed:think"
_CHANNEL = r"<\|channel\|>(?:analysis|commentary)<\|message\|>"
_THINKING_MARK = re.compile(
    rf"<(?P<end>/?)(?P<tag>{_NAMES})(?:\s[^<>]{{0,80}})?>|\[(?P<bend>/?)THINK\]|<\|(?P<state>begin|end)_of_thought\|>"
    rf"|◁(?P<kend>/?)think▷|(?P<channel>{_CHANNEL})|(?P<said><\|end\|>)|(?P<next><\|start\|>|<\|channel\|>final)",
    re.IGNORECASE,
)
THINKING_START = re.compile(
    rf"<(?:{_NAMES})(?:\s[^<>]{{0,80}})?>|\[THINK\]|<\|begin_of_thought\|>|<\|channel\|>(?:analysis|commentary)|◁think▷",
    re.IGNORECASE,
)
_CALL_MARK = re.compile(r"<(?P<end>/?)(?P<tag>tool_calls?|function_call|toolcall|TOOLCALL)>|<function=[\w.-]{1,80}>")
_MISTRAL = re.compile(r"\[TOOL_CALLS\]")
_ELEMENTS = re.compile(r"<(?:[\w-]{1,20}:)?invoke\s+name=|<parameter=|<arg_key>")
_CALL = re.compile(r"<(?:[\w-]{1,20}:)?invoke\s+name=|<function=")
_CALL_END = re.compile(r"</(?:[\w-]{1,20}:)?(?:invoke|function|tool_call)>")
_ARGUMENT = re.compile(
    r"<(?P<prefix>(?:[\w-]{1,20}:)?)parameter(?:\s+name=\"(?P<a>[\w.-]{1,80})\"|=(?P<b>[\w.-]{1,80}))[^<>]{0,80}>"
    r"|<arg_key>\s*(?P<c>[\w.-]{1,80})\s*</arg_key>\s*<arg_value>"
)


class BadCallError(ValueError):
    """A call written as elements cannot be read. `is_truncated`: it has no end."""

    def __init__(self, reason: str, *, is_truncated: bool = False) -> None:
        super().__init__(reason)
        self.is_truncated = is_truncated


def without_thinking(text: str) -> str:
    """Drop closed thinking; an end without a start closes everything before it; a start without an end stays."""
    kept: list[str] = []
    since, opened = 0, ""
    start = 0
    for mark in _THINKING_MARK.finditer(text):
        name, is_end = _thinking_mark(mark)
        if not is_end:
            if not opened:
                kept.append(text[since : mark.start()])
                start, opened = mark.start(), name
        elif name == "channel":
            if opened == "channel":
                since, opened = (mark.end() if mark["said"] else mark.start()), ""
        elif not opened:
            kept.clear()
            since = mark.end()
        elif name == opened:
            since, opened = mark.end(), ""
    return " ".join([*kept, text[start if opened else since :]])


def _thinking_mark(mark: re.Match[str]) -> tuple[str, bool]:
    """Return what a mark opens or closes, and whether it closes."""
    if mark["tag"]:
        return mark["tag"].lower(), bool(mark["end"])
    if mark["bend"] is not None:
        return "[think]", bool(mark["bend"])
    if mark["state"]:
        return "thought", mark["state"].lower() == "end"
    if mark["kend"] is not None:
        return "◁think▷", bool(mark["kend"])
    return "channel", mark["channel"] is None


def called(text: str) -> str | None:
    """Return the payload of one call that stands between marks; None when there is none, or more than one."""
    payloads: list[str] = []
    opened: re.Match[str] | None = None
    for mark in _CALL_MARK.finditer(text):
        if not mark["tag"]:
            end = text.find("</function>", mark.end())
            if opened is None and end >= 0 and len(payloads) < 2:
                payloads.append(text[mark.end() : end])
        elif not mark["end"]:
            opened = opened or mark
        elif opened is not None and opened["tag"] == mark["tag"]:
            payloads.append(text[opened.end() : mark.start()])
            opened = None
    payloads += [text[mark.end() :] for mark in itertools.islice(_MISTRAL.finditer(text), 2)]
    return payloads[0] if len(payloads) == 1 else None


def has_elements(text: str) -> bool:
    """Return whether the text begins a call that is written as elements before anything in braces."""
    found = _ELEMENTS.search(text)
    brace = text.find("{")
    return found is not None and (brace < 0 or found.start() < brace)


def elements(text: str) -> dict[str, Json]:
    """Return the arguments of the one call that is written as elements: text, or what stands in braces.

    Raises:
        BadCallError: there is more than one call, or an object beside it; an argument has no end, stands twice,
            or its JSON is spoilt.
    """
    calls = len(_CALL.findall(text)) or text.count("<tool_call>")
    if calls > 1:
        raise BadCallError("the reply holds several calls; give exactly one")
    found: dict[str, Json] = {}
    at = 0
    while argument := _ARGUMENT.search(text, at):
        name = argument["a"] or argument["b"] or argument["c"]
        closing = "</arg_value>" if argument["c"] else f"</{argument['prefix']}parameter>"
        at = text.find(closing, argument.end())
        if at < 0:
            raise BadCallError(f"the argument {name!r} has no end", is_truncated=True)
        if name in found:
            raise BadCallError(f"the argument {name!r} stands twice")
        found[name] = _value(name, text[argument.end() : at])
        at += len(closing)
    end = _CALL_END.search(text, at)
    if end is None:
        raise BadCallError("the call has no end", is_truncated=True)
    if "{" in text[end.end() :]:
        raise BadCallError("the reply holds a call and something in braces; give exactly one")
    return found


def _value(name: str, text: str) -> Json:
    stripped = text.strip()
    if stripped[:1] not in ("{", "["):
        return text.removeprefix("\n").removesuffix("\n")
    try:
        parse = parse_value(stripped)
    except NotJsonError as error:
        raise BadCallError(f"the argument {name!r}: {error}", is_truncated=error.is_truncated) from error
    if parse.end != len(stripped):
        raise BadCallError(f"the argument {name!r} is more than one value")
    return parse.value
