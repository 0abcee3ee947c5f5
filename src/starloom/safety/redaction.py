"""Hides secrets in text and JSON values before they are journalled, logged or shown to a model.

Called by whoever writes such a thing. Two nets: the secrets that are known word for word, and what looks like one.
It may hide too much, never a part of a secret only.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

MARK = "[redacted]"

_SHORTEST_SECRET = 6
_NAME = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|client[_-]?secret|auth[_-]?token|access[_-]?token"
    r"|refresh[_-]?token|id[_-]?token|session[_-]?token|token|secret|passwd|password|passphrase|passwort|pwd"
    r"|credentials?|authorization|cookie|signature)"
)
_SECRET_KEY = re.compile(rf"(?i)(?:^|[_\-.]|(?<=[a-z])(?=[A-Z])){_NAME}s?$|^(?:x-)?(?:api-key|auth-token)$")
_ENVIRONMENT_NAME = re.compile(r"(?i)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_\w+)?$")


def _after_first_group(match: re.Match[str]) -> str:
    return match[1] + MARK


_PATTERNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MARK),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)[^\s/@'\"<>]+@"), rf"\1{MARK}@"),
    (
        re.compile(rf"(?i)([?&;#](?:[\w.-]{{0,64}}{_NAME}|key|sig|code|auth)=)(?!\[redacted\])[^&#\s'\"<>]+"),
        _after_first_group,
    ),
    (re.compile(r"(?i)\b((?:bearer|basic|digest)\s+)(?!\[redacted\])[a-z0-9._~+/=-]{8,}"), _after_first_group),
    (
        re.compile(
            rf"(?i)(?<![a-z0-9])({_NAME}[\"']?\s*[:=]\s*[\"']?)"
            r"(?!\[redacted\])(?!(?:bearer|basic|digest)\s)[^\s\"',;&<>(){}\[\]]{4,}"
        ),
        _after_first_group,
    ),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"), MARK),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}"), MARK),
    (re.compile(r"\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bhf_[A-Za-z0-9]{20,}"), MARK),
    (re.compile(r"\bxox[abeoprs]-[\w-]{10,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"), MARK),
)


class Redactor:
    """Hides the given secrets, and whatever looks like a secret.

    Args:
        secrets: known secrets (keys, tokens, values marked secret); shorter than six signs are ignored, since hiding
            them would hide half the text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {item for item in secrets if len(item) >= _SHORTEST_SECRET and item not in MARK}
        spelt = {spelling for item in known for spelling in (item, quote(item, safe=""))}
        alternatives = "|".join(re.escape(item) for item in sorted(spelt, key=lambda item: (-len(item), item)))
        self._known = re.compile(alternatives) if spelt else None

    def text(self, text: str) -> str:
        """Return the text with every secret replaced by a mark; text without one comes back unchanged."""
        if self._known is not None:
            text = self._known.sub(MARK, text)
        for pattern, mark in _PATTERNS:
            text = pattern.sub(mark, text)
        return text

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value with every string in it redacted; what stands under a secret's name is hidden whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self.mapping(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def known(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value with the known secrets hidden and all else as it is: for results still to be used."""
        if isinstance(value, str):
            return value if self._known is None else self._known.sub(MARK, value)
        if isinstance(value, Mapping):
            return {str(name): self.known(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.known(item) for item in value]
        return value

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON object redacted as `value` does."""
        return {
            self.text(str(name)): MARK if _is_hidden(str(name), item) else self.value(item)
            for name, item in values.items()
        }


def secrets_of_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of the environment variables whose names say that they are secret."""
    return tuple(value for name, value in environ.items() if value and _ENVIRONMENT_NAME.search(name))


def _is_hidden(name: str, item: object) -> bool:
    """Answer whether a name says that its value is secret; numbers and booleans (`max_tokens`) are none."""
    return isinstance(item, str) and item != "" and _SECRET_KEY.search(name) is not None
