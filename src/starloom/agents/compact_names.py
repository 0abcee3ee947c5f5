"""What in a request may be a name, and which names an argument of a tool may take.

Called by `agents.compact_grammar`, which offers nothing else, and by `agents.compact_checks`. Pure. A name is a quoted
text, an address, a number, a word, or a run of capitalised words. What kind of file a tool is for is told by its name
and summary, as far as they say it.
"""

import re
from collections.abc import Collection, Sequence

from starloom.agents.compact_tools import CompactTool, Parameter, Shape

MAX_NAMES = 300  # in a very long request; the surest come first
_LONGEST_NAME = 200
_LONGEST_RUN = 4  # words

FILE_ENDINGS = {
    *(
        "pdf",
        "xlsx",
        "xls",
        "xlsm",
        "ods",
        "csv",
        "tsv",
        "docx",
        "doc",
        "odt",
        "pptx",
        "ppt",
        "txt",
        "md",
        "json",
        "log",
    ),
    *("html", "htm", "xml", "yaml", "yml", "py", "sh", "js", "ini", "toml", "sql", "db", "svg", "png", "jpg", "jpeg"),
    *("gif", "webp", "bmp", "tif", "tiff", "heic", "zip", "gz", "tgz", "tar", "7z", "mp3", "mp4", "wav", "mov", "eml"),
    *("tmp", "bak", "cfg", "conf", "rtf", "tex", "bin", "exe", "iso", "key", "pem", "dat", "epub"),
}
NOT_TEXT = {
    *("pdf", "xlsx", "xls", "xlsm", "ods", "docx", "doc", "odt", "pptx", "ppt", "png", "jpg", "jpeg", "gif", "webp"),
    *("bmp", "tif", "tiff", "heic", "zip", "gz", "tgz", "tar", "7z", "mp3", "mp4", "wav", "mov", "bin", "exe", "iso"),
}
_CALLED = {  # what files with an ending are called in words
    "txt": ("text",),
    "md": ("markdown",),
    "xlsx": ("excel", "spreadsheet", "workbook"),
    "docx": ("word",),
    "pptx": ("powerpoint", "slides"),
    "jpg": ("photo", "picture", "image", "bild", "foto", "jpeg", "照片", "图片"),
    "png": ("picture", "image", "screenshot", "bild", "图片"),
    "py": ("python",),
}
_ARCHIVES = {"zip", "gz", "tgz", "tar", "7z"}
_IMAGES = {"png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "svg", "heic"}
_SHEETS = {"xlsx", "xls", "xlsm", "ods", "csv", "tsv"}
_TOOLSETS = {"pdf": {"pdf"}, "sheet": _SHEETS, "image": _IMAGES}  # by the first letters of a tool's name
_UNPACKING = ("unzip", "unpack", "extract")
_PACKING = ("zip", "pack", "archive", "compress")
_MADE_BY_SUMMARY = (
    (re.compile(r"\bzip archive\b", re.IGNORECASE), {"zip"}),
    (re.compile(r"\bmarkdown\b", re.IGNORECASE), {"md"}),
    (re.compile(r"\b(picture|image|photo|screenshot)s?\b", re.IGNORECASE), _IMAGES),
)

_FOLDER_WORDS = {"folder", "folders", "directory", "cwd"}
_ADDRESS_WORDS = {"url", "uri", "address", "link"}
_MAIL = re.compile(r"\be-?mail\b", re.IGNORECASE)
_PERSON_WORDS = {"to", "recipient", "recipients", "cc", "bcc", "email"}
_NUMBER_WORDS = {"number", "phone"}
PATTERN_WORDS = {"pattern", "glob"}

_FILE_NAME = re.compile(r"[\w./ -]*[\w-]\.[A-Za-z0-9]\w{0,4}")
PATTERN_MARKS = re.compile(r"[*?\[\]{}]")
_QUOTED = re.compile(r"[\"“„「《‘]([^\"“”„「」《》‘’]{1,200})[\"”“」》’]|(?<!\w)'([^']{1,200})'(?!\w)")
_NUMBER = re.compile(r"\+?\d[\d ()/-]{4,}\d")
_IDEOGRAPH = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
_SEAM = re.compile(rf"(?<={_IDEOGRAPH})(?=[!-~])|(?<=[!-~])(?={_IDEOGRAPH})")
_PLACED = re.compile(
    r"\b(?:in|into|inside|to|from|under|of|nach|aus|im|en|a|dans|vers)\s+"
    r"(?:(?:the|my|our|den|die|das|dem|el|la|le|folder|directory|ordner|carpeta)\s+)*(\S{1,200})",
    re.IGNORECASE,
)
_CALLED_FOLDER = re.compile(r"(?<!\S)(\S{1,200})\s+(?:folder|directory|ordner)\b", re.IGNORECASE)
_WORD_EDGE = "\"'`“”‘’«»„()[]{}<>,;:!?。，、；：！？（）「」《》"
_LITTLE_WORDS = {  # they join names, and are none
    *("a", "an", "the", "in", "on", "at", "to", "of", "by", "is", "it", "as", "or", "and", "are", "all", "for"),
    *("from", "into", "with", "then", "them", "this", "that", "these", "those", "which", "what", "where", "who"),
    *("how", "my", "me", "our", "your", "their", "his", "her", "its", "i", "we", "you", "they", "he", "she", "do"),
    *("does", "did", "be", "was", "were", "can", "could", "would", "should", "please", "pls", "file", "files"),
    *("folder", "folders", "directory", "called", "named", "both", "each", "every", "also", "there", "here"),
    *("any", "some", "so", "if", "up", "out"),
}
_FOREIGN_WORDS = {  # the same in German, Spanish and French
    *("der", "die", "das", "den", "dem", "des", "ein", "eine", "einen", "einem", "einer", "und", "oder", "auf"),
    *("im", "nach", "von", "vom", "zu", "zum", "zur", "mit", "aus", "bitte", "ist", "sind", "wie", "welche"),
    *("datei", "dateien", "ordner", "el", "la", "los", "las", "lo", "un", "una", "y", "o", "en", "de", "del"),
    *("al", "con", "para", "por", "que", "une", "le", "les", "et", "du", "au", "dans", "pour", "archivo"),
    *("archivos", "carpeta"),
}


def spans(request: str) -> tuple[str, ...]:
    """Return what in the request may be a name, the surest first."""
    quoted = [one or other for one, other in _QUOTED.findall(request)]
    words = [*request.split(), *(_SEAM.sub(" ", request).split() if _SEAM.search(request) else ())]
    single = [
        text
        for text in map(stripped, words)
        if text.casefold() not in _LITTLE_WORDS | _FOREIGN_WORDS and _says_something(text)
    ]
    sure = [text for text in single if is_sure(text)]
    found = dict.fromkeys([*quoted, *sure, *map(str.strip, _NUMBER.findall(request)), *single, *_runs(request)])
    return tuple(name for name in found if len(name) <= _LONGEST_NAME)[:MAX_NAMES]


def _says_something(text: str) -> bool:
    return text.casefold() not in FILE_ENDINGS and any(letter.isalnum() for letter in text)


def _runs(request: str) -> list[str]:
    """Return the runs of two to four words that all begin with a capital or a digit."""
    words = request.split()
    found = []
    for start in range(len(words)):
        for end in range(start + 2, min(start + _LONGEST_RUN, len(words)) + 1):
            if not all(word[:1].isupper() or word[:1].isdigit() for word in words[start:end]):
                break
            if not _NUMBER.search(run := " ".join(words[start:end])):  # numbers are found whole
                found.append(stripped(run))
    return found


def stripped(word: str) -> str:
    """Return the word without the marks around it."""
    return word.strip(_WORD_EDGE).rstrip(".")


def is_sure(text: str) -> bool:
    """Return whether the text is surely a name: an address or a file with a known ending."""
    return "://" in text or (ending(text) in FILE_ENDINGS and "@" not in text)


def sure_names(request: str) -> tuple[str, ...]:
    """Return the addresses and files that the request names, in its order."""
    return tuple(dict.fromkeys(text for text in map(stripped, _SEAM.sub(" ", request).split()) if is_sure(text)))


def ending(place: str) -> str:
    """Return the letters after the last dot of a file's name; empty for a folder, a pattern or an address."""
    name = place.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if _FILE_NAME.fullmatch(name) and "://" not in place else ""


def has_ideographs(request: str) -> bool:
    """Return whether the request has script without spaces between words, so that its words cannot be listed."""
    return re.search(_IDEOGRAPH, request) is not None


def is_foreign(request: str) -> bool:
    """Return whether the request is in another language than English, as far as its little words tell."""
    words = {stripped(word).casefold() for word in request.split()}
    return has_ideographs(request) or len(words & _FOREIGN_WORDS) > len(words & _LITTLE_WORDS)


def folders_said(request: str) -> tuple[str, ...]:
    """Return the words that are said as one says a folder: after a word of place, or beside "folder"."""
    said = [match.group(1) for match in _PLACED.finditer(request)] + [
        m.group(1) for m in _CALLED_FOLDER.finditer(request)
    ]
    words = (stripped(word).rstrip("/") for word in said)
    return tuple(dict.fromkeys(word for word in words if _may_hold_files(word)))


def _may_hold_files(word: str) -> bool:
    is_name = "://" not in word and "@" not in word and not ending(word) and not word.isdigit()
    return is_name and _says_something(word) and word.casefold() not in _LITTLE_WORDS | _FOREIGN_WORDS


def occurs(place: str, request: str) -> bool:
    """Return whether the request gives this name; a pattern, when it gives the part before the marks or the ending."""
    haystack = request.casefold()
    needle = place.casefold().strip()
    if needle in (".", "./", "*", "*.*"):
        return True
    if needle in haystack or needle.rstrip("/") in haystack:
        return True
    if PATTERN_MARKS.search(needle):
        pieces = [piece.strip("/.") for piece in PATTERN_MARKS.split(needle)]
        return all(_is_said(piece, haystack) for piece in pieces if piece)
    folder, _, name = needle.rpartition("/")
    return bool(folder) and folder in haystack and name in haystack


def _is_said(piece: str, haystack: str) -> bool:
    """Whether a part of a pattern is in the request, or what files with this ending are called is."""
    return piece in haystack or any(word in haystack for word in _CALLED.get(piece, ()))


def is_folder(parameter: Parameter) -> bool:
    """Return whether the argument is called a folder."""
    return parameter.name.lower() in _FOLDER_WORDS


def takes(tool: CompactTool, place: str, *, is_made: bool) -> bool:
    """Return whether the tool can be meant for a file of this ending, as far as its name and summary say."""
    expected = expected_endings(tool, is_made=is_made)
    if expected is not None:
        return ending(place) in expected or bool(PATTERN_MARKS.search(place)) or (is_made and not _is_file(place))
    is_text_tool = re.search(r"\btext\b", tool.summary.lower()) if is_made else _reads_text_files(tool)
    return not (is_text_tool and ending(place) in NOT_TEXT)


def _reads_text_files(tool: CompactTool) -> bool:
    return tool.is_reading and "text file" in tool.summary.lower()


def expected_endings(tool: CompactTool, *, is_made: bool) -> Collection[str] | None:
    """Return the endings of the files that the tool makes, or reads; None when nothing is told."""
    toolset, _, verb = tool.name.lower().rpartition(".")
    if not is_made and verb.startswith(_UNPACKING):
        return _ARCHIVES
    if is_made and verb.startswith(_PACKING):
        return _ARCHIVES
    if is_made and tool.outputs:
        for words, endings in _MADE_BY_SUMMARY:
            if words.search(tool.summary) and not verb.startswith(_UNPACKING):
                return endings
    return next((endings for start, endings in _TOOLSETS.items() if toolset.startswith(start)), None)


def candidates(tool: CompactTool, parameter: Parameter, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the names that the argument may take; none: the tool cannot be meant."""
    kind = parameter.name.lower()
    if kind in _ADDRESS_WORDS:
        return tuple(name for name in names if "://" in name) or tuple(filter(_is_domain, names))
    if kind in _PERSON_WORDS:
        people = tuple(name for name in names if "@" in name and "://" not in name)
        return people or (() if _MAIL.search(tool.summary) else _plain(names))
    if kind in _NUMBER_WORDS:
        return tuple(name for name in names if _NUMBER.fullmatch(name)) or tuple(names)
    if is_folder(parameter):
        return (*_plain(names), ".")
    if parameter.shape is Shape.TEXTS or kind not in PATH_WORDS:
        return tuple(name for name in names if "://" not in name)
    is_made = parameter.name in tool.outputs
    fitting = tuple(
        name for name in names if "://" not in name and "@" not in name and takes(tool, name, is_made=is_made)
    )
    if reads_a_named_file(tool, parameter, names) or _wants_files(tool, is_made, fitting):
        return tuple(name for name in fitting if _is_file(name) or (tool.is_reading and "/" in name))
    return fitting


def reads_a_named_file(tool: CompactTool, parameter: Parameter, names: Sequence[str]) -> bool:
    """Return whether the argument is a file to read, where the request names files: then no mere word is meant."""
    return tool.is_reading and parameter.name.lower() in PATH_WORDS and any(map(_is_file, names))


PATH_WORDS = {"path", "file", "source", "destination", "target", "output", "archive"}


def _wants_files(tool: CompactTool, is_made: bool, names: Sequence[str]) -> bool:
    """Whether only names with an ending are meant: where the tool tells an ending and the request gives one."""
    return expected_endings(tool, is_made=is_made) is not None and any(map(_is_file, names))


def _plain(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not _is_file(name) and "://" not in name and "@" not in name)


def _is_file(name: str) -> bool:
    return ending(name) in FILE_ENDINGS


def _is_domain(name: str) -> bool:
    return re.fullmatch(r"[\w-]+(\.[\w-]+)+(/\S*)?", name) is not None and not _is_file(name)
