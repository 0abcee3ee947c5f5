"""Cheap checks of a compact plan against its request: they find about half of a small model's mistakes.

Called by `agents.compact_planner`. Pure. Each complaint is one sentence that goes back to the model once, and to the
person when it stays. Source: reference llm.md 2.3.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from starloom.agents.compact_grammar import COMMAND_WORDS, MAX_STEPS, Bounds, CompactTool, Shape
from starloom.agents.compact_reading import CompactStep, normal, references, texts

_PATTERN_MARKS = re.compile(r"[*?\[\]{}]")
_MACHINE = r"(devices?|machines?|computers?|servers?|hosts?|laptops?|pcs?|sites?|geräte?n?|rechnern?|computern?)"
_SEVERAL = re.compile(
    rf"\b(both|all|every|each|two|other|another|beiden?|allen?|jede[nms]?|andere[nmrs]?)\b(\W+\w+)?\W+{_MACHINE}\b"
    r"|\bon (both|all|each|every)\b|\bauf (beiden|allen|jedem)\b|\beverywhere\b|\büberall\b"
    r"|(两|每|各|另一|所有|全部)(台|个)?(设备|机器|电脑|服务器)",
    re.IGNORECASE,
)
_ON = r"(on|at|of|from|auf|von|in)\s+((the|my|our|dem|der|den|device|machine)\s+)*"
_LITTLE_WORDS = {
    *("a", "an", "the", "in", "on", "at", "to", "of", "by", "is", "it", "as", "or", "and", "are", "all", "for", "from"),
    *("into", "with", "then", "them", "this", "that", "which", "what", "my", "me", "files", "file", "folder"),
}
_FILE_NAME = re.compile(r"[\w./ -]*[\w-]\.[A-Za-z]\w{0,4}")
_ENDINGS = {
    "pdf": {"pdf"},
    "sheet": {"xlsx", "xls", "xlsm", "ods", "csv", "tsv"},
    "image": {"png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "svg"},
}
_NOT_TEXT = {"pdf", "xlsx", "xls", "docx", "doc", "pptx", "png", "jpg", "jpeg", "gif", "zip", "gz"}
_FILE_ENDINGS = {
    *_NOT_TEXT,
    *("txt", "md", "csv", "tsv", "json", "log", "html", "xml", "yaml", "yml", "py", "ini", "ods", "svg"),
}
_WORD_EDGE = "\"'`“”‘’«»„()[]{}<>,;:!?。，、；：！？（）「」《》"


class Remedy(StrEnum):
    """How a second try can be kept from the same mistake."""

    WORDS = "words"  # only by saying so
    ANOTHER_TOOL = "another_tool"
    GIVEN_NAMES = "given_names"  # only names that the request gives
    OTHER_REFERENCE = "other_reference"
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
    used = {step.device_id for step in steps}
    found += [
        Complaint(f"The request names the device {device!r}, but no line uses it.")
        for device in device_ids
        if device not in used and len(device_ids) > 1 and names_device(request, device)
    ]
    found += _repeats(steps)
    found += _missing(steps, request)
    return tuple(dict.fromkeys(found))


def names_device(request: str, device_id: str) -> bool:
    """Return whether the request names the device as a word of its own, and not as a part of a path."""
    return re.search(rf"(?<![\w./-]){re.escape(device_id)}(?![\w/-]|\.\w)", request, re.IGNORECASE) is not None


def devices_meant(request: str, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the devices that a plan may use: the named ones and the first, which stands for "here".

    When the words mean several without naming them (both, all, the other one …), any device may be used.
    """
    named = [device for device in device_ids if names_device(request, device)]
    if not named and _SEVERAL.search(request):
        return tuple(device_ids)
    return tuple(device for device in device_ids if device in named or device == device_ids[0])


def corrected(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[CompactStep, ...]:
    """Return the steps with what the request leaves no doubt about put right.

    A file is used on the device that it is tied to ("notes.txt on the branch", "a.csv here"), unless tied to several
    or where the tool is not; and a file's name and its text, when exchanged, change places.
    """
    return tuple(_bound(_unexchanged(step), request, device_ids) for step in steps)


def _unexchanged(step: CompactStep) -> CompactStep:
    """Put a name that is no file, beside a text that is one, in each other's place."""
    names = [item.name for item in step.tool.parameters if item.shape is Shape.TEXT and item.name in step.values]
    outputs = [name for name in names if name in step.tool.outputs]
    others = [item.name for item in step.tool.parameters if item.name in names and not item.is_place]
    if len(outputs) != 1 or len(others) != 1:
        return step
    name, text = step.values[outputs[0]], step.values[others[0]]
    if _ending(str(name)) in _FILE_ENDINGS or _ending(str(text)) not in _FILE_ENDINGS:
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
        elif place in device_ids and place not in made and not _is_path_named(place, request):
            text = f"{place!r} in line {step.line} is a device, not a place on it."
            remedy = Remedy.WORDS
        elif re.fullmatch(r"s\d+", place):
            text = f"Line {step.line} writes the line number {place!r} as a name; name the file."
        elif maker is None and not occurs(place, request) and not _is_inside(place, made):
            text = f"{place!r} in line {step.line} is neither in the request nor made by an earlier line."
        if text:
            found.append(Complaint(text, step.line, remedy))
    return found


def occurs(place: str, request: str) -> bool:
    """Return whether the request gives this name; a pattern, when it gives the part before the marks or the ending."""
    haystack = request.casefold()
    needle = place.casefold().strip()
    if needle in (".", "./", "*", "*.*"):
        return True
    if needle in haystack or needle.rstrip("/") in haystack:
        return True
    if _PATTERN_MARKS.search(needle):
        pieces = [piece.strip("/.") for piece in _PATTERN_MARKS.split(needle)]
        return all(piece in haystack for piece in pieces if piece)
    folder, _, name = needle.rpartition("/")
    return bool(folder) and folder in haystack and name in haystack


def _is_path_named(place: str, request: str) -> bool:
    """Whether the request calls the word a file or a folder."""
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
    """Return the lines that turn results into a file, so that nothing can refer to them."""
    return frozenset(step.line for step in steps if step.tool.outputs and references(step))


def _folders(step: CompactStep) -> list[Complaint]:
    """An argument called a folder takes no name that is a file's."""
    found = []
    for parameter in step.tool.parameters:
        if parameter.name in ("folder", "directory"):
            for place in texts(step.values.get(parameter.name, "")):
                if _ending(place) in _FILE_ENDINGS:
                    text = f"Line {step.line} wants a folder, and {place!r} is a file."
                    found.append(Complaint(text, step.line, Remedy.GIVEN_NAMES))
    return found


def _copied(step: CompactStep, request: str, example_texts: frozenset[str]) -> list[Complaint]:
    """A value that only the examples gave."""
    return [
        Complaint(f"{text!r} in line {step.line} is not in the request.", step.line, Remedy.ANOTHER_TOOL)
        for value in step.values.values()
        for text in texts(value)
        if text in example_texts and text.casefold() not in request.casefold()
    ]


def _invented_commands(step: CompactStep, request: str) -> list[Complaint]:
    """A command that a small model made up is not run without a word: it must stand in the request."""
    return [
        Complaint(f"The command {text!r} in line {step.line} is not in the request.", step.line, Remedy.ANOTHER_TOOL)
        for name in COMMAND_WORDS & step.values.keys()
        for text in texts(step.values[name])
        if " ".join(text.split()).casefold() not in " ".join(request.split()).casefold()
    ]


def _missing(steps: Sequence[CompactStep], request: str) -> list[Complaint]:
    """Each file and address that the request names must be used by some line."""
    used = " ".join(text for step in steps for value in step.values.values() for text in texts(value)).casefold()
    named = dict.fromkeys(text for text in map(_stripped, request.split()) if _is_name(text))
    return [
        Complaint(f"The request names {text!r}, but no line uses it.", 0, Remedy.MORE_LINES)
        for text in named
        if text.casefold() not in used
    ]


def _stripped(word: str) -> str:
    return word.strip(_WORD_EDGE).rstrip(".")


def _is_name(text: str) -> bool:
    return "://" in text or _ending(text) in _FILE_ENDINGS


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
        if not _takes(step.tool, place, is_made=is_made)
    ]


def _takes(tool: CompactTool, place: str, *, is_made: bool) -> bool:
    """Whether a tool can be meant for a file of this ending, as far as its name and summary say."""
    ending = _ending(place)
    toolset, summary = tool.name.partition(".")[0].lower(), tool.summary.lower()
    expected = next((endings for word, endings in _ENDINGS.items() if toolset.startswith(word)), None)
    if expected is not None:
        return is_made or ending in expected or bool(_PATTERN_MARKS.search(place))
    is_text_tool = re.search(r"\btext\b", summary) if is_made else tool.is_reading and "text file" in summary
    return not (is_text_tool and ending in _NOT_TEXT)


def _ending(place: str) -> str:
    """Return the letters after the last dot of a file's name; empty for a folder, a pattern or an address."""
    name = place.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if _FILE_NAME.fullmatch(name) and "://" not in place else ""


def _repeats(steps: Sequence[CompactStep]) -> list[Complaint]:
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for step in steps:
        key = (step.device_id, step.tool.name, *sorted(step.values.items(), key=lambda item: item[0]))
        if key in seen:
            found.append(Complaint(f"Line {step.line} repeats line {seen[key]}.", step.line))
        seen.setdefault(key, step.line)
    return found


def bounds_after(
    found: Sequence[Complaint],
    steps: Sequence[CompactStep],
    written: str,
    request: str,
    tools: Sequence[CompactTool],
    before: Bounds | None = None,
) -> Bounds:
    """Return what holds the next try: the lines before the first mistake stay, and the mistake is made impossible.

    When only something is missing, all lines stay and at least one must follow.
    """
    lines = tuple(written.strip().split("\n"))
    in_lines = [complaint for complaint in found if complaint.line]
    if not in_lines:
        is_short = all(item.remedy is Remedy.MORE_LINES for item in found) and len(lines) < MAX_STEPS
        return Bounds(kept=lines, not_referable=lines_without_result(steps)) if is_short else Bounds()
    first = min(complaint.line for complaint in in_lines)
    wrong = steps[first - 1]
    kept = steps[: first - 1]
    made = [place for step in kept for place in step.places(made=True)]
    bad_places = {text for text in wrong.places() if any(repr(text) in item.text for item in in_lines)}
    banned: frozenset[str] = frozenset()
    if any(item.line == first and item.remedy is Remedy.ANOTHER_TOOL for item in in_lines):
        inputs = wrong.places(made=False)
        unfit = [tool.name for tool in tools if any(not _takes(tool, place, is_made=False) for place in inputs)]
        banned = frozenset([wrong.tool.name, *unfit])
    if before is not None and len(before.kept) == first - 1:
        banned |= before.banned_tools
    names = [*made, *spans(request)]
    return Bounds(
        kept=lines[: first - 1],
        banned_tools=banned if len(banned) < len({tool.name for tool in tools}) else frozenset(),
        not_referable=lines_without_result(kept),
        places=tuple(dict.fromkeys(name for name in names if name not in bad_places)),
    )


def spans(request: str, *, longest: int = 4) -> tuple[str, ...]:
    """Return what in the request may be a name: quoted texts, words, and short runs of capitalised words."""
    found = dict.fromkeys(re.findall(r"[\"“„'‘]([^\"“”„'‘’]{1,80})[\"”“'’]", request))
    words = request.split()
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            text = _stripped(" ".join(words[start:end]))
            if text and (
                end == start + 1 or all(word[:1].isupper() or word[:1].isdigit() for word in words[start:end])
            ):
                found.setdefault(text)
    return tuple(text for text in found if text.casefold() not in _LITTLE_WORDS)
