"""Cheap checks of a compact plan against its request: they find about half of a small model's mistakes.

Called by `agents.compact_planner`. Pure. Each complaint is one sentence that goes back to the model once, and to the
person when it stays. Source: reference llm.md 2.3.
"""

import re
from collections.abc import Sequence

from starloom.agents.compact_reading import CompactStep, normal, references, texts

_PATTERN_MARKS = re.compile(r"[*?\[\]{}]")
_MACHINE = r"(devices?|machines?|computers?|servers?|hosts?|laptops?|pcs?|sites?|geräte?n?|rechnern?|computern?)"
_SEVERAL = re.compile(
    rf"\b(both|all|every|each|two|other|another|beiden?|allen?|jede[nms]?|andere[nmrs]?)\b(\W+\w+)?\W+{_MACHINE}\b"
    r"|\bon (both|all|each|every)\b|\bauf (beiden|allen|jedem)\b|\beverywhere\b|\büberall\b"
    r"|(两|每|各|另一|所有|全部)(台|个)?(设备|机器|电脑|服务器)",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"[\w./ -]*[\w-]\.[A-Za-z]\w{0,4}")
_ENDINGS = {
    "pdf": {"pdf"},
    "sheet": {"xlsx", "xls", "xlsm", "ods", "csv", "tsv"},
    "image": {"png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "svg"},
}
_NOT_TEXT = {"pdf", "xlsx", "xls", "docx", "doc", "pptx", "png", "jpg", "jpeg", "gif", "zip", "gz"}
_WORD_EDGE = "\"'`“”‘’«»„()[]{}<>,;:!?。，、；：！？（）「」《》"


def complaints(steps: Sequence[CompactStep], request: str, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return what is wrong with the plan; empty when nothing was found."""
    found: list[str] = []
    made: dict[str, CompactStep] = {}
    for step in steps:
        found += _literals(step, request, made, device_ids)
        found += _reference_kinds(step, steps)
        found += _exchanged(step)
        found += _wrong_kind(step)
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


def _exchanged(step: CompactStep) -> list[str]:
    """A name that is no file beside a text that is one: the two arguments are the wrong way round."""
    written = [
        text for item in step.tool.parameters if not item.is_place for text in texts(step.values.get(item.name, ""))
    ]
    made = step.places(made=True)
    if (
        any(_FILE_NAME.fullmatch(text) for text in written)
        and made
        and not any(_FILE_NAME.fullmatch(name) for name in made)
    ):
        return [f"Line {step.line} has its file name and its text the wrong way round."]
    return []


def _wrong_kind(step: CompactStep) -> list[str]:
    """A PDF tool reads PDF files, a sheet tool sheets; a text tool no file that is known to be something else."""
    toolset = step.tool.name.partition(".")[0].lower()
    expected = next((endings for word, endings in _ENDINGS.items() if toolset.startswith(word)), None)
    is_text_tool = step.tool.is_reading and "text file" in step.tool.summary.lower()
    found = []
    for place in step.places(made=False):
        ending = _ending(place)
        if ending and ((expected and ending not in expected) or (is_text_tool and ending in _NOT_TEXT)):
            found.append(f"{step.tool.name} in line {step.line} cannot read a .{ending} file; use another tool for it.")
    return found


def _ending(place: str) -> str:
    """Return the letters after the last dot of a file's name; empty for a folder, a pattern or an address."""
    name = place.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if _FILE_NAME.fullmatch(name) and "://" not in place else ""


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
