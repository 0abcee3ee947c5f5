"""Cheap checks of a compact plan against its request: they find about half of a small model's mistakes.

Called by `agents.compact_planner`. Pure. Each complaint is one sentence that goes back to the model once, and to the
person when it stays. Source: reference llm.md 2.3.
"""

import re
from collections.abc import Sequence

from starloom.agents.compact_reading import CompactStep, normal, references

_PATTERN_MARKS = re.compile(r"[*?\[\]{}]")
_MACHINE = r"(devices?|machines?|computers?|servers?|hosts?|laptops?|pcs?|sites?|geräte?n?|rechnern?|computern?)"
_SEVERAL = re.compile(
    rf"\b(both|all|every|each|two|other|another|beiden?|allen?|jede[nms]?|andere[nmrs]?)\b(\W+\w+)?\W+{_MACHINE}\b"
    r"|\bon (both|all|each|every)\b|\bauf (beiden|allen|jedem)\b|\beverywhere\b|\büberall\b"
    r"|(两|每|各|另一|所有|全部)(台|个)?(设备|机器|电脑|服务器)",
    re.IGNORECASE,
)
_WORD_EDGE = "\"'`“”‘’«»„()[]{}<>,;:!?。，、；：！？（）「」《》"


def complaints(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return what is wrong with the plan; empty when nothing was found."""
    found: list[str] = []
    made: dict[str, CompactStep] = {}
    for step in steps:
        found += _literals(step, request, made, device_ids)
        found += _reference_kinds(step, steps)
        inputs = {normal(place) for place in step.places(made=False)}
        for place in step.places(made=True):
            if normal(place) in inputs:
                found.append(f"Line {step.line} lists its own output {place!r} among its inputs.")
            made[normal(place)] = step
    used = {step.device_id for step in steps}
    found += [
        f"The request names the device {device!r}, but no line uses it."
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


def _literals(step: CompactStep, request: str, made: dict[str, CompactStep], device_ids: Sequence[str]) -> list[str]:
    found = []
    for place in step.places():
        maker = made.get(normal(place))
        if maker is not None and maker.device_id != step.device_id and place in step.places(made=False):
            found.append(
                f"{place!r} is made on {maker.device_id!r}, but line {step.line} uses it on {step.device_id!r}."
            )
        elif place in device_ids and place not in made and not _is_path_named(place, request):
            found.append(f"{place!r} in line {step.line} is a device, not a place on it.")
        elif re.fullmatch(r"s\d+", place):
            found.append(f"Line {step.line} writes the line number {place!r} as a name; name the file.")
        elif maker is None and not occurs(place, request) and not _is_inside(place, made):
            found.append(f"{place!r} in line {step.line} is neither in the request nor made by an earlier line.")
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
    return (
        re.search(
            rf"(folder|directory|file)s?\s+{re.escape(place)}\b|\b{re.escape(place)}\s+(folder|directory)",
            request,
            re.I,
        )
        is not None
    )


def _is_inside(place: str, made: dict[str, CompactStep]) -> bool:
    return any(normal(place).startswith(f"{folder}/") for folder in made)


def _reference_kinds(step: CompactStep, steps: Sequence[CompactStep]) -> list[str]:
    """A step whose work is a file has no result to combine; its file is named, not referred to."""
    return [
        f"Line {step.line} refers to s{line}, which writes a file and has no rows to take; name the file instead."
        for line in references(step)
        if steps[line - 1].tool.outputs and references(steps[line - 1])
    ]


def _repeats(steps: Sequence[CompactStep]) -> list[str]:
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for step in steps:
        key = (step.device_id, step.tool.name, *sorted(step.values.items(), key=lambda item: item[0]))
        if key in seen:
            found.append(f"Line {step.line} repeats line {seen[key]}.")
        seen.setdefault(key, step.line)
    return found


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
