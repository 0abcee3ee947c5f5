"""Four detectors of text that tries to give orders, and the seeds' `sanitize_user_input` over them.

Called by whoever hands foreign text to a model. They are telemetry, not a defence: a finding raises what a person is
asked (`Facts.suspicions`) and is logged; permission is decided by `rules`. The user's own words are never altered: only
text of other origin may be passed through `sanitize_user_input`.

Source: seed 4, primitive 5. The seed's printed patterns and its printed result differ; the result is followed here:

    role            [SYSTEM]:            marked
    role_header     ## role: admin       marked, together with the order that follows it
    confirmation    user has confirmed   the word "has" is marked: the claim is broken, its words stay readable
    override        ignore all previous instructions and …, new priority: …   marked
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

MARK = "[SANITIZED]"
MAX_INPUT_LENGTH = 10_000

_ROLES = r"(?:system|admin|assistant|user|developer)"
_KINDS = r"(?:update|override|instructions?|message|prompt|note)"
_DETECTORS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("role", re.compile(rf"(?i)\[\s*{_ROLES}\s*{_KINDS}?\s*(?:\]\s*:|:)")),
    (
        "role_header",
        re.compile(
            rf"(?im)^[^\S\n]*(?:\#{{1,6}}[^\S\n]+)?"
            rf"(?:role[^\S\n]*:[^\S\n]*{_ROLES}\b|{_ROLES}[^\S\n]*(?:{_KINDS}[^\S\n]*)?:|role[^\S\n]*:)"
        ),
    ),
    (
        "confirmation",
        re.compile(
            r"(?i)\buser\s+(?P<mark>has)\s+(?:already\s+)?(?:confirmed|approved)"
            r"|\bproceed\s+(?:immediately|without\s+(?:user\s+)?confirm\w*)"
            r"|\bskip\s+(?:the\s+)?confirm\w*|\bbypass\s+(?:safety|security|confirm\w*)"
        ),
    ),
    (
        "override",
        re.compile(
            r"(?i)\b(?:ignore|disregard|forget)\s+(?:all\s+)?(?:the\s+)?(?:previous|prior|above|earlier)\s+instructions?\b"
            r"(?:\s+and\b)?"
            r"|\bnew\s+(?:priority|instructions?|directive)\b\s*:?"
            r"|\bprevious\s+instructions?\s+(?:are|is)\s+(?:now\s+)?(?:invalid|cancel(?:l)?ed|null|void)"
        ),
    ),
)
_TOUCHING_MARKS = re.compile(rf"{re.escape(MARK)}(?:\s*{re.escape(MARK)})+")


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a detector fired; `start` and `end` delimit what `sanitize_user_input` marks."""

    detector: str
    start: int
    end: int
    text: str


def detect(text: str) -> tuple[Finding, ...]:
    """Return every finding in the text, by place; the text is not changed."""
    findings = [
        Finding(name, *_marked(match), match[0]) for name, pattern in _DETECTORS for match in pattern.finditer(text)
    ]
    return tuple(sorted(findings, key=lambda item: (item.start, -item.end)))


def sanitize_user_input(text: str, field_name: str = "user_input") -> str:
    """Return foreign text with its orders marked and its length limited; each change is logged, without the text.

    Marks that only white space keeps apart become one. Applying it twice changes nothing more.

    Args:
        text: text that is not the user's own.
        field_name: what the log calls it.
    """
    if len(text) > MAX_INPUT_LENGTH:
        logger.warning("%s was cut from %d to %d signs.", field_name, len(text), MAX_INPUT_LENGTH)
        text = text[:MAX_INPUT_LENGTH]
    fired: list[str] = []
    while found := detect(text):  # once, nearly always: a mark may lay bare another order
        fired += [finding.detector for finding in found]
        text = _with_marks(text, found)
    if fired:
        logger.warning("%s holds text that tries to give orders: %s.", field_name, ", ".join(fired))
    return text[:MAX_INPUT_LENGTH]


def _with_marks(text: str, found: Sequence[Finding]) -> str:
    parts: list[str] = []
    end = 0
    for finding in found:
        if finding.start >= end:
            parts += [text[end : finding.start], MARK]
        end = max(end, finding.end)
    return _TOUCHING_MARKS.sub(MARK, "".join([*parts, text[end:]]))


def _marked(match: re.Match[str]) -> tuple[int, int]:
    """Return the span to mark: the group named so, else the whole match."""
    if "mark" in match.re.groupindex and match["mark"] is not None:
        return match.span("mark")
    return match.span()
