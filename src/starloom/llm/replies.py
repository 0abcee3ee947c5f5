"""The one reader of replies: a model's text in, a JSON value or the reason why not, with every repair logged.

Called by `llm.fitting`, which holds the value against a schema. Pure; total: any text ends in `Parsed` or `Unreadable`.
The repairs, in order; each is tried only when it is needed, and none on a reply that was cut off:

    1 byte_order_mark   marks and zero bytes before the text       6 fence            ```json … ```, anywhere
    2 thinking          <think> … </think> and its cousins         7 prose_around     words before and after the value
    3 call_elements     <invoke name=…><parameter name=…> …        8 (lenient_json)   commas, quotes, literals, …
    4 special_tokens    <|im_end|>, </s> …                         9 double_encoding  the value as a JSON string
    5 tool_call_text    <tool_call>{…}</tool_call> …              10 several_values   kept apart; the schema may tell
                                                                     repeated_value   the same value again

Source: issue of replies that always end in something usable; ours: 2 only with an end tag, or when the provider says
that the model stopped by itself, for else a draft inside the thinking could be taken for the answer.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from starloom.llm.call_markup import THINKING_START, BadCallError, called, elements, has_elements, without_thinking
from starloom.llm.lenient_json import MAX_DEPTH, NotJsonError, Parse, parse_value

Json: TypeAlias = Any
Finish: TypeAlias = Literal["stop", "length", "unknown"]

MAX_CHARACTERS = 400_000

MAX_VALUES = 50
_MAX_STARTS = 5_000
_MAX_TRIED = 200_000  # characters read in vain, while looking for values in the words

_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SPECIAL = re.compile(
    r"<\|[a-z0-9_▁]{1,40}\|>(?:final\b)?|<｜[^｜\n]{1,40}｜>|</?s>|<(?:end_of_turn|start_of_turn|eos|bos|pad)>"
    r"|\[/?INST\]|<(?:final|answer|response|output|json|result)>|</(?:final|answer|response|output|json|result)>",
    re.IGNORECASE,
)
_FENCE = re.compile(r"(```|~~~)[^\n`]*?(?:\r?\n|(?=\s*[\[{]))(.*?)\1", re.DOTALL)
_LANGUAGES = {"json", "json5", "jsonc", "python", "javascript", "js", "text"}
_VALUE_START = re.compile(r"[{｛]|[\[［](?=\s*[\[{\"“'］\]｛［])")
_CLOSING = re.compile("[}｝]")
_TORN = re.compile(r"[\"'”’]\s*[,}]")  # the end of a text whose beginning was dropped as thinking
_REAL_OBJECT = re.compile(r"[{｛]\s*(?:[\"'“”„‘`＂}｝]|[A-Za-z_][\w-]*\s*[:：]|//|/\*|[#,:;])|[\[［]")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The reply's values, almost always one, and the repairs that were needed, in order."""

    values: tuple[Json, ...]
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why there is no value: half a sentence for the model and for the log."""

    reason: str
    is_truncated: bool = False


def parse_reply(text: str, finish: Finish = "unknown") -> Parsed | Unreadable:
    """Return what the reply holds. A reply that was cut off is never repaired, only read when it is whole as it is."""
    if len(text) > MAX_CHARACTERS:
        return Unreadable("the reply is far too long")
    if _SURROGATE.search(text):  # half a character cannot be stored
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    exact = _exact(text)
    if exact is not None:
        return exact
    if finish == "length":
        return Unreadable("the reply was cut off before its end", is_truncated=True)
    return _direct(text) or _repaired(text, finish)


def _repaired(text: str, finish: Finish) -> Parsed | Unreadable:
    """Read a reply that has something around its value."""
    repairs: list[str] = []
    for name, step in (("byte_order_mark", _without_marks), ("thinking", without_thinking)):
        text = _noted(name, step(text), text, repairs)
    if THINKING_START.search(text):
        if finish != "stop":
            return Unreadable("the thinking has no end, so an answer cannot be told from a draft", is_truncated=True)
        text = _noted("thinking", THINKING_START.sub("", text), text, repairs)
    if has_elements(text):
        return _from_elements(text, repairs)
    text = _noted("special_tokens", _SPECIAL.sub(" ", text), text, repairs)
    calls = called(text)
    if calls is not None and not _VALUE_START.search(text.replace(calls, "", 1)):  # else it may be quoted in an answer
        text = _noted("tool_call_text", calls, text, repairs)
    return _search(text, repairs)


def _from_elements(text: str, repairs: list[str]) -> Parsed | Unreadable:
    try:
        return Parsed((elements(text),), (*repairs, "call_elements"))
    except BadCallError as error:
        return Unreadable(str(error), error.is_truncated)


def _noted(name: str, after: str, before: str, repairs: list[str]) -> str:
    if after != before and name not in repairs:
        repairs.append(name)
    return after


def _exact(text: str) -> Parsed | None:
    """Read a reply that is JSON as it stands and gives no key twice; a bare string may hold JSON once more."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict | list) or _is_deep(value):
        return None
    if _HALF_ESCAPE.search(text) and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        return None
    return Parsed((value,))


def _is_deep(value: Json) -> bool:
    """Return whether values are nested deeper than the lenient parser allows."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _direct(text: str) -> Parsed | None:
    """Read a reply that is one value with slips in it and nothing around, so that no tag inside a string is touched."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[", "｛", "［"):
        return None
    try:
        parse = parse_value(stripped)
    except NotJsonError:
        return None
    return Parsed((parse.value,), parse.repairs) if parse.end == len(stripped) else None


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(_: str) -> None:
    raise ValueError


def _without_marks(text: str) -> str:
    return text.replace("\ufeff", "").replace("\x00", "").replace("\u200b", "").replace("\u2060", "")


def _search(text: str, repairs: list[str]) -> Parsed | Unreadable:
    """Look for values: the fenced ones when there are any, else those that stand in the words."""
    fenced = [match.group(2) for match in _FENCE.finditer(text)]
    in_fences = [_values(body) for body in fenced]
    good = [found for found in in_fences if isinstance(found, list) and found]
    if good:
        repairs.append("fence")
        outside = _FENCE.sub(" ", text).strip()
        if outside:
            repairs.append("prose_around")
        bad = next((found for found in in_fences if isinstance(found, Unreadable)), None)
        return bad or _collect([item for found in good for item in found], repairs)
    found = _values(text)
    if isinstance(found, Unreadable):
        return found
    if not found:
        return _encoded(text, repairs)
    if "thinking" in repairs and _TORN.search(text, found[-1].end):
        return Unreadable("a value stands inside the text of another")
    before = text[: found[0].start].strip("` \n\r\t~")
    if before or text[found[-1].end :].strip("` \n\r\t~"):
        is_language = not before or before.lower() in _LANGUAGES
        repairs.append("fence" if is_language and not text[found[-1].end :].strip("` \n\r\t~") else "prose_around")
    return _collect(found, repairs)


def _values(text: str) -> list[Parse] | Unreadable:
    """Return every value that stands in the text; a spoilt one spoils the whole, so that no piece of it is taken."""
    found: list[Parse] = []
    at = tried = seen = 0
    unread = -1  # where a brace stands that begins no value, and has not been closed by then
    while start := _VALUE_START.search(text, at):
        seen += 1
        if tried > _MAX_TRIED or len(found) > MAX_VALUES or seen > _MAX_STARTS:
            return Unreadable("the reply holds far too many braces or values; give exactly one object")
        try:
            parse = parse_value(text, start.start())
        except NotJsonError as error:
            if error.is_truncated:
                return Unreadable(f"the reply ends too early: {error}", is_truncated=True)
            if _REAL_OBJECT.match(text, start.start()) and start.group() in "{｛":
                return Unreadable(str(error))
            tried += error.position - start.start() + 1
            at = start.end()
            unread = start.start() if start.group() in "{｛" and not text.startswith(("{", "｛"), at) else unread
            continue
        if unread >= 0 and text[unread + 1 : parse.start].strip() and not _CLOSING.search(text, unread, parse.start):
            return Unreadable("a value stands inside braces that are no JSON")
        at, unread = parse.end, -1
        if not _is_empty_or_citation(parse.value) or (parse.value == {} and not found and not text[at:].strip()):
            found.append(parse)
    return found


def _is_empty_or_citation(value: Json) -> bool:
    """`{}`, `[1]`, `["a"]` in prose: no reply of ours is a list of plain values."""
    return not value or (isinstance(value, list) and not any(isinstance(item, dict | list) for item in value))


def _collect(found: list[Parse], repairs: list[str]) -> Parsed:
    distinct: list[Parse] = []
    for parse in found:
        if not any(_same(parse.value, other.value) for other in distinct):
            distinct.append(parse)
    if len(distinct) < len(found):
        repairs.append("repeated_value")
    if len(distinct) > 1:
        repairs.append("several_values")
    for parse in distinct:
        repairs += [repair for repair in parse.repairs if repair not in repairs]
    return Parsed(tuple(parse.value for parse in distinct), tuple(repairs))


def _same(one: Json, other: Json) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _encoded(text: str, repairs: list[str]) -> Parsed | Unreadable:
    """Read a reply that is one JSON string holding JSON."""
    stripped = text.strip()
    if stripped[:1] in ('"', "“"):
        try:
            inner = parse_value(stripped)
        except NotJsonError as error:
            return Unreadable(str(error), error.is_truncated)
        if isinstance(inner.value, str) and inner.end == len(stripped) and inner.value.strip()[:1] in ("{", "["):
            return _search(inner.value, [*repairs, "double_encoding"])
    return Unreadable("there is no JSON object in the reply" if stripped else "the reply is empty")
