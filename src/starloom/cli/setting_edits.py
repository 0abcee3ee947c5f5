"""Changes one value in the text of the settings file and leaves everything else as it is, the comments too.

Called by `model use`. The new text is written only when it reads as what was meant; else the user is told what to do.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from starloom.errors import UsageError


def changed(text: str, path: Sequence[str], value: str) -> str:
    """Return the YAML text with the string at the path of keys set; what is missing on the way is made.

    Raises:
        UsageError: the text is laid out so that it cannot be changed safely.
    """
    where = ".".join(path)
    failure = UsageError(f"The settings file cannot be changed by itself. Set {where!r} to {value!r} in it yourself.")
    try:
        meant = _with(yaml.safe_load(text) or {}, path, value)
        after = _edited(text, path, value)
        if yaml.safe_load(after) == meant:
            return after
    except (yaml.YAMLError, TypeError, AttributeError) as error:  # no YAML, or no mapping where one should be
        raise failure from error
    raise failure


def write_setting(file: Path, path: Sequence[str], value: str) -> None:
    """Set the value in the file, which is made when there is none; a link stays a link, and the mode stays.

    Raises:
        UsageError: the file cannot be written, or not be changed safely.
    """
    try:
        real = file.resolve()
        text = real.read_text(encoding="utf-8") if real.exists() else ""
        content = changed(text, path, value)
        real.parent.mkdir(parents=True, exist_ok=True)
        part = real.with_suffix(".part")
        part.touch()
        if real.exists():
            shutil.copymode(real, part)
        part.write_text(content, encoding="utf-8")
        part.replace(real)
    except UnicodeDecodeError as error:
        raise UsageError(f"The settings file {str(file)!r} is not UTF-8 text.") from error
    except OSError as error:
        raise UsageError(f"The settings file {str(file)!r} cannot be written: {error.strerror}.") from error


def _with(content: Mapping[str, Any], path: Sequence[str], value: str) -> dict[str, Any]:
    key, *rest = path
    return {**content, key: _with(content.get(key) or {}, rest, value) if rest else value}


def _edited(text: str, path: Sequence[str], value: str) -> str:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, key in enumerate(path):
        if node is None:
            return f"{text.rstrip()}\n{_lines(path, value, 0)}".lstrip("\n")
        if not isinstance(node, yaml.MappingNode):
            return _put(text, node, path[depth:], value)
        found = next((child for name, child in node.value if name.value == key), None)
        if found is None:
            return _inserted(text, node, path[depth:], value)
        node = found
    return _put(text, node, (), value)


def _put(text: str, node: "yaml.Node | None", path: Sequence[str], value: str) -> str:
    """Put the value, below the keys, in the place of a node that holds one value or none."""
    if node is None:
        return text
    start, end = node.start_mark.index, node.end_mark.index
    space = " " if text[start - 1 : start] == ":" else ""
    return f"{text[:start]}{space}{_flow(path, value)}{text[end:]}"


def _inserted(text: str, mapping: yaml.MappingNode, path: Sequence[str], value: str) -> str:
    """Put the keys before the mapping's first one."""
    start: int = mapping.start_mark.index
    if mapping.flow_style:
        entry = _flow(path, value).removeprefix("{").removesuffix("}")
        return f"{text[: start + 1]}{entry}{', ' if mapping.value else ''}{text[start + 1 :]}"
    indent: int = mapping.start_mark.column
    line_start = start - indent
    return f"{text[:line_start]}{_lines(path, value, indent)}{text[line_start:]}"


def _flow(path: Sequence[str], value: str) -> str:
    return "".join(f"{{{key}: " for key in path) + _quoted(value) + "}" * len(path)


def _lines(path: Sequence[str], value: str, indent: int) -> str:
    lines = [f"{' ' * (indent + 2 * depth)}{key}:" for depth, key in enumerate(path)]
    lines[-1] += f" {_quoted(value)}"
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return yaml.safe_dump(value, default_style='"', width=10_000, allow_unicode=True).strip()
