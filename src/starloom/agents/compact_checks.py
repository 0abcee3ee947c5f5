"""Cheap checks of a compact plan against its request: they find about half of a small model's mistakes.

Called by `agents.compact_planner`. Pure. Each complaint is one sentence that goes back to the model once, and to the
person when it stays. Source: reference llm.md 2.3.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from starloom.agents.compact_names import FILE_ENDINGS, ending, is_foreign, occurs, sure_names, takes
from starloom.agents.compact_reading import CompactStep, normal, references, texts
from starloom.agents.compact_tools import COMMAND_WORDS, CompactTool, Shape
from starloom.safety.policy import Risk

_MACHINE = r"(devices?|machines?|computers?|servers?|hosts?|laptops?|pcs?|sites?|geräte?n?|rechnern?|computern?)"
_ALL = re.compile(
    rf"\b(both|all|every|each|beiden?|allen?|jede[nms]?)\b(\W+\w+)?\W+{_MACHINE}\b"
    r"|\bon (both|all|each|every)\b|\bauf (beiden|allen|jedem)\b|\beverywhere\b|\büberall\b"
    r"|(两|每|各|所有|全部)(台|个)?(设备|机器|电脑|服务器)",
    re.IGNORECASE,
)
_ANOTHER = re.compile(
    rf"\b(two|other|another|andere[nmrs]?)\b(\W+\w+)?\W+{_MACHINE}\b|另一(台|个)?(设备|机器|电脑|服务器)", re.IGNORECASE
)
_COMMON_VERBS = {
    "read",
    "write",
    "list",
    "find",
    "open",
    "save",
    "show",
    "text",
    "send",
    "call",
    "make",
    "status",
    "query",
}
_ON = r"(on|at|of|from|auf|von|in)\s+((the|my|our|dem|der|den|device|machine)\s+)*"


class Remedy(StrEnum):
    """How a second try can be kept from the same mistake."""

    WORDS = "words"  # only by saying so
    ANOTHER_TOOL = "another_tool"
    GIVEN_NAMES = "given_names"  # only names that the request gives
    OTHER_REFERENCE = "other_reference"
    INVENTED = "invented"  # another tool; or none, where nothing of the request is open
    LEAVE_OUT = "leave_out"
    MORE_LINES = "more_lines"  # what is there may stay, something is missing


@dataclass(frozen=True, slots=True)
class Complaint:
    """One mistake: a sentence for the model and the person, and the line it is in; 0: no single one."""

    text: str
    line: int = 0
    remedy: Remedy = Remedy.WORDS


def complaints(
    steps: Sequence[CompactStep], request: str, device_ids: Sequence[str], example_texts: frozenset[str] = frozenset()
) -> tuple[Complaint, ...]:
    """Return what is wrong with the plan; empty when nothing was found. `example_texts`: the examples' own values."""
    found: list[Complaint] = []
    made: dict[str, CompactStep] = {}
    for step in steps:
        found += _literals(step, request, made, device_ids)
        found += _reference_kinds(step, steps)
        found += _folders(step)
        found += _invented_commands(step, request)
        found += _copied(step, request, example_texts)
        found += _wrong_kind(step)
        inputs = {normal(place) for place in step.places(made=False)}
        for place in step.places(made=True):
            if normal(place) in inputs:
                found.append(Complaint(f"Line {step.line} lists its own output {place!r} among its inputs.", step.line))
            made[normal(place)] = step
    found += [
        Complaint(f"The request means the device {device!r} too, but no line uses it.")
        for device in devices_left_out(steps, request, device_ids)
    ]
    found += _repeats(steps)
    found += _sent_twice(steps)
    found += _missing(steps, request)
    return tuple(dict.fromkeys(found))


def names_device(request: str, device_id: str) -> bool:
    """Return whether the request names the device as a word of its own, and not as a part of a path."""
    return re.search(rf"(?<![\w./-]){re.escape(device_id)}(?![\w/-]|\.\w)", request, re.IGNORECASE) is not None


def devices_named(request: str, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the devices whose names are in the request."""
    return tuple(device for device in device_ids if names_device(request, device))


def devices_left_out(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the devices that the request names, or means by "both" or "every machine", and that no line uses."""
    wanted = devices_named(request, device_ids) if len(device_ids) > 1 else ()
    if not wanted and _ALL.search(request):
        wanted = tuple(device for device in device_ids if all(device in step.tool.devices for step in steps))
    used = {step.device_id for step in steps}
    return tuple(device for device in wanted if device not in used)


def on_every_device(
    steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]
) -> tuple[CompactStep, ...] | None:
    """Return the steps, all on one device and without references, on every device that the request means by "every".

    None: it names the devices, or means no others.
    """
    left = devices_left_out(steps, request, device_ids)
    is_simple = len({step.device_id for step in steps}) == 1 and not any(references(step) for step in steps)
    if not left or not is_simple or devices_named(request, device_ids):
        return None
    copies = [replace(step, device_id=device) for device in left for step in steps]
    return tuple(replace(step, line=line) for line, step in enumerate([*steps, *copies], start=1))


def devices_meant(request: str, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the devices that a plan may use: the named ones and the first, which stands for "here".

    When the words mean several without naming them (both, all, the other one …), any device may be used.
    """
    named = [device for device in device_ids if names_device(request, device)]
    if not named and (_ALL.search(request) or _ANOTHER.search(request)):
        return tuple(device_ids)
    return tuple(device for device in device_ids if device in named or device == device_ids[0])


def corrected(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[CompactStep, ...]:
    """Return the steps with what the request leaves no doubt about put right.

    A file is used on the device that it is tied to ("notes.txt on the branch", "a.csv here"), unless tied to several
    or where the tool is not, and where an earlier line made it; and a file's name and its text, when exchanged, change
    places.
    """
    done: list[CompactStep] = []
    for step in steps:
        done.append(_bound(_at_its_maker(_unexchanged(step), done), request, device_ids))
    return tuple(done)


def _at_its_maker(step: CompactStep, before: Sequence[CompactStep]) -> CompactStep:
    """Move a step to the device that made what it reads, when one device made it all."""
    inputs = {normal(place) for place in step.places(made=False)}
    makers = {place: earlier.device_id for earlier in before for place in map(normal, earlier.places(made=True))}
    here = {device for place, device in makers.items() if place in inputs}
    if len(here) != 1 or not inputs <= makers.keys() or not here <= set(step.tool.devices):
        return step
    return replace(step, device_id=here.pop())


def _unexchanged(step: CompactStep) -> CompactStep:
    """Put a name that is no file, beside a text that is one, in each other's place."""
    names = [item.name for item in step.tool.parameters if item.shape is Shape.TEXT and item.name in step.values]
    outputs = [name for name in names if name in step.tool.outputs]
    others = [item.name for item in step.tool.parameters if item.name in names and not item.is_place]
    if len(outputs) != 1 or len(others) != 1:
        return step
    name, text = step.values[outputs[0]], step.values[others[0]]
    if ending(str(name)) in FILE_ENDINGS or ending(str(text)) not in FILE_ENDINGS:
        return step
    return replace(step, values={**step.values, outputs[0]: text, others[0]: name})


def _bound(step: CompactStep, request: str, device_ids: Sequence[str]) -> CompactStep:
    tied = {
        device
        for place in step.places()
        for device in device_ids
        if re.search(
            rf"(?<![\w./-]){re.escape(place)}\W{{1,3}}{_ON}{re.escape(device)}(?![\w/-]|\.\w)", request, re.IGNORECASE
        )
        or (device == device_ids[0] and re.search(rf"(?<![\w./-]){re.escape(place)} here\b", request))
    }
    if len(tied) != 1 or not tied <= set(step.tool.devices):
        return step
    return replace(step, device_id=tied.pop())


def _literals(
    step: CompactStep, request: str, made: dict[str, CompactStep], device_ids: Sequence[str]
) -> list[Complaint]:
    found = []
    for place in step.places():
        maker = made.get(normal(place))
        text, remedy = "", Remedy.GIVEN_NAMES
        if maker is not None and maker.device_id != step.device_id and place in step.places(made=False):
            text = f"{place!r} is made on {maker.device_id!r}, but line {step.line} uses it on {step.device_id!r}."
            remedy = Remedy.WORDS
        elif place in device_ids and place not in made and not is_path_named(place, request):
            text = f"{place!r} in line {step.line} is a device, not a place on it."
            remedy = Remedy.WORDS
        elif re.fullmatch(r"s\d+", place):
            text = f"Line {step.line} writes the line number {place!r} as a name; name the file."
        elif maker is None and not occurs(place, request) and not _is_inside(place, made):
            text = f"{place!r} in line {step.line} is neither in the request nor made by an earlier line."
        if text:
            found.append(Complaint(text, step.line, remedy))
    return found


def is_path_named(place: str, request: str) -> bool:
    """Return whether the request calls the word a file or a folder."""
    word, kind = re.escape(place), "(folder|directory|file)"
    return re.search(rf"{kind}s?\s+{word}\b|\b{word}\s+{kind}", request, re.IGNORECASE) is not None


def _is_inside(place: str, made: dict[str, CompactStep]) -> bool:
    return any(normal(place).startswith(f"{folder}/") for folder in made)


def _reference_kinds(step: CompactStep, steps: Sequence[CompactStep]) -> list[Complaint]:
    """A step whose work is a file has no result to combine; its file is named, not referred to."""
    without = lines_without_result(steps)
    return [
        Complaint(
            f"Line {step.line} refers to s{line}, which only writes a file; refer to what the file is made from.",
            step.line,
            Remedy.OTHER_REFERENCE,
        )
        for line in references(step)
        if line in without
    ]


def lines_without_result(steps: Sequence[CompactStep]) -> frozenset[int]:
    """Return the lines whose work is a file, so that nothing can refer to them."""
    return frozenset(step.line for step in steps if step.tool.outputs)


def _folders(step: CompactStep) -> list[Complaint]:
    """An argument called a folder takes no name that is a file's."""
    found = []
    for parameter in step.tool.parameters:
        if parameter.name in ("folder", "directory"):
            for place in texts(step.values.get(parameter.name, "")):
                if ending(place) in FILE_ENDINGS:
                    text = f"Line {step.line} wants a folder, and {place!r} is a file."
                    found.append(Complaint(text, step.line, Remedy.GIVEN_NAMES))
    return found


def _copied(step: CompactStep, request: str, example_texts: frozenset[str]) -> list[Complaint]:
    """A value that only the examples gave."""
    return [
        Complaint(f"{text!r} in line {step.line} is not in the request.", step.line, Remedy.INVENTED)
        for value in step.values.values()
        for text in texts(value)
        if text in example_texts and not occurs(text, request)
    ]


def _invented_commands(step: CompactStep, request: str) -> list[Complaint]:
    """A command that a small model made up is not run without a word: it must stand in the request."""
    return [
        Complaint(f"The command {text!r} in line {step.line} is not in the request.", step.line, Remedy.INVENTED)
        for name in COMMAND_WORDS & step.values.keys()
        for text in texts(step.values[name])
        if " ".join(text.split()).casefold() not in " ".join(request.split()).casefold()
    ]


def _missing(steps: Sequence[CompactStep], request: str) -> list[Complaint]:
    """Each file and address that the request names must be used by some line."""
    used = " ".join(text for step in steps for value in step.values.values() for text in texts(value)).casefold()
    return [
        Complaint(f"The request names {text!r}, but no line uses it.", 0, Remedy.MORE_LINES)
        for text in sure_names(request)
        if text.casefold() not in used
    ]


def left_out(steps: Sequence[CompactStep], tools: Sequence[CompactTool], request: str) -> dict[str, str]:
    """Return the tools that a word of the request asks for and no line uses, each with that word.

    Only a tool whose last name is a word of work ("translate", not "read") is found so.
    """
    used = {step.tool.name.rpartition(".")[2] for step in steps}
    words = re.findall(r"(?<![\w./-])[a-z]{4,}(?![\w/-]|\.\w)", request.casefold())
    found: dict[str, str] = {}
    for tool in tools:
        verb = tool.name.rpartition(".")[2]
        said = next((word for word in words if verb not in _COMMON_VERBS and _is_form(word, verb.casefold())), None)
        if said is not None and verb not in used:
            found[tool.name] = said
    return found


def asks_for_a_tool(tools: Sequence[CompactTool], request: str) -> bool:
    """Return whether a refusal should not be trusted: the request begins with what a tool is called ("list", "run").

    Or it names a file or an address in another language than English, which a small model knows less well.
    """
    word = (request.split() or [""])[0].strip(",.:;!").casefold()
    is_called = any(word in tool.name.casefold().split(".") for tool in tools if tool.risk is not Risk.EXTERNAL)
    return is_called or (is_foreign(request) and bool(sure_names(request)))


def _is_form(word: str, verb: str) -> bool:
    """Whether the word is the verb, or what it does: translate, translated, translation."""
    stem = verb.rstrip("e")
    is_same = word in (verb, f"{stem}ed", f"{stem}ing", f"{verb}d")
    return is_same or (len(verb) > 6 and len(word) > 6 and word[:6] == verb[:6])


def _wrong_kind(step: CompactStep) -> list[Complaint]:
    """A PDF tool reads PDF files, a sheet tool sheets; a text tool no file that is known to be something else."""
    return [
        Complaint(
            f"{step.tool.name} in line {step.line} is not for {place!r}; use another tool.",
            step.line,
            Remedy.ANOTHER_TOOL,
        )
        for is_made in (False, True)
        for place in step.places(made=is_made)
        if not takes(step.tool, place, is_made=is_made)
    ]


def _repeats(steps: Sequence[CompactStep]) -> list[Complaint]:
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for step in steps:
        key = (step.device_id, step.tool.name, *sorted(step.values.items(), key=lambda item: item[0]))
        if key in seen:
            found.append(Complaint(f"Line {step.line} repeats line {seen[key]}.", step.line, Remedy.LEAVE_OUT))
        seen.setdefault(key, step.line)
    return found


def _sent_twice(steps: Sequence[CompactStep]) -> list[Complaint]:
    """What leaves the fleet goes to one place once: a small model likes to send again what it has sent."""
    seen: dict[tuple[str, ...], int] = {}
    found = []
    for step in steps:
        key = (step.device_id, step.tool.name, *step.places(made=True))
        if step.tool.risk is Risk.EXTERNAL and len(key) > 2:
            if key in seen:
                text = f"Line {step.line} sends to {key[-1]!r} again, after line {seen[key]}."
                found.append(Complaint(text, step.line, Remedy.INVENTED))
            seen.setdefault(key, step.line)
    return found
