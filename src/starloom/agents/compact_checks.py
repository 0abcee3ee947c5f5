"""Cheap checks of a compact plan against its request: they find about half of a small model's mistakes.

Called by `agents.compact_planner`. Pure. Each complaint is one sentence that goes back to the model once, and to the
person when it stays. Source: reference llm.md 2.3.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from starloom.agents.compact_grammar import Bounds
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
_FILE_NAME = re.compile(r"[\w./ -]*[\w-]\.[A-Za-z]\w{0,4}")
_ENDINGS = {
    "pdf": {"pdf"},
    "sheet": {"xlsx", "xls", "xlsm", "ods", "csv", "tsv"},
    "image": {"png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "svg"},
}
_NOT_TEXT = {"pdf", "xlsx", "xls", "docx", "doc", "pptx", "png", "jpg", "jpeg", "gif", "zip", "gz"}
_WORD_EDGE = "\"'`“”‘’«»„()[]{}<>,;:!?。，、；：！？（）「」《》"


class Remedy(StrEnum):
    """How a second try can be kept from the same mistake."""

    WORDS = "words"  # only by saying so
    ANOTHER_TOOL = "another_tool"
    GIVEN_NAMES = "given_names"  # only names that the request gives
    OTHER_REFERENCE = "other_reference"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One mistake: a sentence for the model and the person, and the line it is in; 0: no single one."""

    text: str
    line: int = 0
    remedy: Remedy = Remedy.WORDS


def complaints(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[Complaint, ...]:
    """Return what is wrong with the plan; empty when nothing was found."""
    found: list[Complaint] = []
    made: dict[str, CompactStep] = {}
    for step in steps:
        found += _literals(step, request, made, device_ids)
        found += _reference_kinds(step, steps)
        found += _exchanged(step)
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


def bound_to_devices(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[CompactStep, ...]:
    """Return the steps on the devices that the request ties their files to: "notes.txt on the branch", "a.csv here".

    A file that is tied to several devices, or to one without the tool, is left where the model put it.
    """
    return tuple(_bound(step, request, device_ids) for step in steps)


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


def _exchanged(step: CompactStep) -> list[Complaint]:
    """A name that is no file beside a text that is one: the two arguments are the wrong way round."""
    others = [step.values.get(item.name, "") for item in step.tool.parameters if not item.is_place]
    has_file_as_text = any(_FILE_NAME.fullmatch(text) for value in others for text in texts(value))
    made = step.places(made=True)
    if has_file_as_text and made and not any(_FILE_NAME.fullmatch(name) for name in made):
        return [Complaint(f"Line {step.line} has its file name and its text the wrong way round.", step.line)]
    return []


def _wrong_kind(step: CompactStep) -> list[Complaint]:
    """A PDF tool reads PDF files, a sheet tool sheets; a text tool no file that is known to be something else."""
    toolset, summary = step.tool.name.partition(".")[0].lower(), step.tool.summary.lower()
    expected = next((endings for word, endings in _ENDINGS.items() if toolset.startswith(word)), None)
    wrong = [
        ending
        for ending in map(_ending, step.places(made=False))
        if ending and expected is not None and ending not in expected
    ]
    if expected is None and "text file" in summary and step.tool.is_reading:
        wrong += [ending for ending in map(_ending, step.places()) if ending in _NOT_TEXT]
    if expected is None and re.search(r"\btext\b", summary) and not step.tool.is_reading:
        wrong += [ending for ending in map(_ending, step.places(made=True)) if ending in _NOT_TEXT]
    return [
        Complaint(
            f"{step.tool.name} in line {step.line} is not for .{ending} files; use another tool.",
            step.line,
            Remedy.ANOTHER_TOOL,
        )
        for ending in wrong
    ]


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


def bounds_after(found: Sequence[Complaint], steps: Sequence[CompactStep], written: str, request: str) -> Bounds:
    """Return what holds a second try: the lines before the first mistake stay, and the mistake is made impossible."""
    first = min(complaint.line for complaint in found)
    if first == 0:
        return Bounds()
    remedies = {complaint.remedy for complaint in found if complaint.line == first}
    kept = steps[: first - 1]
    places: tuple[str, ...] = ()
    if Remedy.GIVEN_NAMES in remedies:
        made = [place for step in kept for place in step.places(made=True)]
        places = tuple(dict.fromkeys([*made, *spans(request)]))
    return Bounds(
        kept=tuple(written.strip().split("\n")[: first - 1]),
        banned_tools=frozenset({steps[first - 1].tool.name}) if Remedy.ANOTHER_TOOL in remedies else frozenset(),
        not_referable=lines_without_result(kept),
        places=places,
    )


def spans(request: str, *, longest: int = 6) -> tuple[str, ...]:
    """Return the request's words and short runs of words, without the punctuation around them: candidate names."""
    words = request.split()
    found: dict[str, None] = {}
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            text = " ".join(words[start:end]).strip(_WORD_EDGE).rstrip(".")
            if text:
                found.setdefault(text)
    return tuple(found)
