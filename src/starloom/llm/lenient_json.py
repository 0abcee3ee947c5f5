r"""A JSON parser that forgives a fixed list of slips and refuses everything else.

Called by `llm.replies` only. Models slip in a few well-known ways; each is allowed here by name, with one meaning, and
logged. What could mean two things (an unescaped quote inside a string, two different values for one key) and whatever
ends too early is refused: a guessed action is worse than a second question.

    comment            // … /* … */ # …               trailing_comma    [1, 2,]  {"a": 1,}
    single_quotes      {'a': 'b'}                      typographic_quotes “a”: „b“
    python_literal     None True False                 not_a_number      NaN, Infinity: read as null
    bare_key           {a: 1}                          full_width        ｛“a”：１，…｝
    control_character  a raw newline in a string       duplicate_key     the same key and value twice
    bad_escape         "C:\Users" with one backslash     plus_sign         +1
    missing_comma      members on lines of their own
"""

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = Any

MAX_DEPTH = 100

_CLOSING_QUOTE = {'"': '"', "'": "'", "“": "”", "”": "”", "„": "“”", "‘": "’", "＂": "＂", "`": "`"}
_FULL_WIDTH = {"｛": "{", "｝": "}", "［": "[", "］": "]", "：": ":", "，": ",", "、": ","}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "'": "'"}
_LITERALS: dict[str, tuple[Json, str | None]] = {
    "true": (True, None),
    "false": (False, None),
    "null": (None, None),
    "True": (True, "python_literal"),
    "False": (False, "python_literal"),
    "None": (None, "python_literal"),
    "TRUE": (True, "python_literal"),
    "FALSE": (False, "python_literal"),
    "NULL": (None, "python_literal"),
    "undefined": (None, "not_a_number"),
    "NaN": (None, "not_a_number"),
    "nan": (None, "not_a_number"),
    "Infinity": (None, "not_a_number"),
    "-Infinity": (None, "not_a_number"),
}
_NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_WORD = re.compile(r"-?[A-Za-z_$][\w$-]*")
_SPACE = re.compile(r"[\s\u00a0\u3000\ufeff]*")
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)


class NotJsonError(ValueError):
    """The text is no value, even with every slip forgiven. `is_truncated`: it ended too early."""

    def __init__(self, reason: str, position: int, *, is_truncated: bool = False) -> None:
        super().__init__(f"{reason} at character {position}")
        self.position = position
        self.is_truncated = is_truncated


@dataclass(slots=True)
class Parse:
    """A value, where it stands in the text, and the slips that were forgiven, in order, each once."""

    value: Json
    start: int
    end: int
    repairs: tuple[str, ...]


def parse_value(text: str, start: int = 0) -> Parse:
    """Return the one value that begins at `start`; what follows it is the caller's to judge.

    Raises:
        NotJsonError: there is none, it ended too early, or it could mean two things.
    """
    parser = _Parser(text, start)
    value = parser.value(0)
    return Parse(value, start, parser.at, tuple(parser.repairs))


@dataclass(slots=True)
class _Parser:
    text: str
    at: int
    repairs: dict[str, None] = field(default_factory=dict)

    def note(self, repair: str) -> None:
        self.repairs.setdefault(repair)

    def peek(self) -> str:
        """Skip space and comments; return the next character in its plain form, empty at the end."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches the empty text too
            if self.text.startswith("/*", self.at) and self.text.find("*/", self.at) < 0:
                raise NotJsonError("a comment is not closed", self.at, is_truncated=True)
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                break
            self.note("comment")
            self.at = comment.end()
        char = self.text[self.at : self.at + 1]
        if char in _FULL_WIDTH:
            self.note("full_width")
            return _FULL_WIDTH[char]
        return char

    def value(self, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise NotJsonError("it is nested too deeply", self.at)
        char = self.peek()
        if char == "{":
            return self.mapping(depth)
        if char == "[":
            return self.sequence(depth)
        if char in _CLOSING_QUOTE and char:
            return self.string()
        if not char:
            raise NotJsonError("it ends before a value", self.at, is_truncated=True)
        return self.number_or_word()

    def mapping(self, depth: int) -> dict[str, Json]:
        self.at += 1
        found: dict[str, Json] = {}
        while self.peek() != "}":
            key = self.key()
            if self.peek() != ":":
                raise self.unexpected("a colon")
            self.at += 1
            value = self.value(depth + 1)
            if key in found:
                if found[key] != value or type(found[key]) is not type(value):
                    raise NotJsonError(f"the key {key!r} has two different values", self.at)
                self.note("duplicate_key")
            found[key] = value
            self.separator("}")
        self.at += 1
        return found

    def sequence(self, depth: int) -> list[Json]:
        self.at += 1
        found: list[Json] = []
        while self.peek() != "]":
            found.append(self.value(depth + 1))
            self.separator("]")
        self.at += 1
        return found

    def separator(self, closing: str) -> None:
        """Take a comma, which may trail, or none before the end; a new line may stand for one."""
        before = self.at
        char = self.peek()
        if char == ",":
            self.at += 1
            if self.peek() == closing:
                self.note("trailing_comma")
        elif char != closing:
            if not char or "\n" not in self.text[before : self.at] or char in "]}:":
                raise self.unexpected(f"a comma or {closing!r}")
            self.note("missing_comma")

    def key(self) -> str:
        char = self.peek()
        if char in _CLOSING_QUOTE and char:
            return self.string()
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise self.unexpected("a key")
        self.at = word.end()
        self.note("bare_key")
        return word.group()

    def string(self) -> str:
        opening = self.text[self.at]
        if opening != '"':
            self.note("single_quotes" if opening in "'`" else "typographic_quotes")
        closing = _CLOSING_QUOTE[opening]
        self.at += 1
        pieces: list[str] = []
        escapes: set[str] = set()
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                raise NotJsonError("a string is not closed", self.at, is_truncated=True)
            self.at += 1
            if char in closing:
                self.end_of_string()
                if "\\" in escapes and escapes & set("\b\f\n\r\t"):
                    raise NotJsonError("its backslashes could be a path or line breaks", self.at)
                return _join_surrogates("".join(pieces))
            if char == "\\":
                pieces.append(self.escape(escapes))
                continue
            if char < " ":
                self.note("control_character")
            pieces.append(char)

    def end_of_string(self) -> None:
        """Refuse a string that is followed by what cannot follow one: an unescaped quote inside it, most likely."""
        here = self.at
        char = self.peek()
        if char and char not in ",:]}" and "\n" not in self.text[here : self.at]:
            raise NotJsonError("a quote stands inside a string", here)
        self.at = here

    def escape(self, seen: set[str]) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            raise NotJsonError("a string is not closed", self.at, is_truncated=True)
        if char == "u":
            digits = self.text[self.at + 1 : self.at + 5]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                self.at += 5
                return chr(int(digits, 16))
        elif char in _ESCAPES:
            if char == "'":
                self.note("bad_escape")
            self.at += 1
            if char not in "\\\"/'":
                seen.add(_ESCAPES[char])
            return _ESCAPES[char]
        elif char == "\n":
            raise NotJsonError("a line is continued inside a string", self.at)
        self.note("bad_escape")
        seen.add("\\")
        return "\\"  # the character itself follows as it is

    def number_or_word(self) -> Json:
        plain = self.text[self.at : self.at + 40].translate(_DIGITS)
        number = _NUMBER.match(plain)
        if number is not None:
            written = number.group()
            if plain[: number.end()] != self.text[self.at : self.at + number.end()]:
                self.note("full_width")
            if written.startswith("+"):
                self.note("plus_sign")
            if number.end() == 40:
                raise NotJsonError("a number is too long", self.at)
            self.at += number.end()
            return int(written) if re.fullmatch(r"[-+]?\d+", written) else _finite(float(written), self)
        word = _WORD.match(self.text, self.at)
        if word is None or word.group() not in _LITERALS:
            raise self.unexpected("a value")
        value, repair = _LITERALS[word.group()]
        if repair:
            self.note(repair)
        self.at = word.end()
        return value

    def unexpected(self, wanted: str) -> NotJsonError:
        if self.at >= len(self.text):
            return NotJsonError(f"it ends where {wanted} should stand", self.at, is_truncated=True)
        rest = self.text[self.at : self.at + 12]
        is_cut_word = any(word.startswith(rest) for word in _LITERALS)
        return NotJsonError(f"{self.text[self.at]!r} stands instead of {wanted}", self.at, is_truncated=is_cut_word)


_DIGITS = {ord("０") + digit: str(digit) for digit in range(10)}


def _finite(number: float, parser: _Parser) -> float | None:
    if number in (float("inf"), float("-inf")):
        parser.note("not_a_number")
        return None
    return number


def _join_surrogates(text: str) -> str:
    """Return the text with each pair of surrogates as one character, and lone halves replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
