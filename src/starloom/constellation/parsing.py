"""JSON and YAML text to plain values, bounded: size, depth, aliases and repeated keys; for what people hand us.

Used by `documents`, and by the readers of lists that other programs wrote (devices, models, MCP servers).
A file that is too large or built to explode is refused before it is expanded, with the place named.
"""

import json
import re
from pathlib import Path
from typing import Any

from starloom.constellation.problems import DocumentError
from starloom.constellation.values import Json

MAX_JSON_BYTES = 48_000_000
MAX_YAML_BYTES = 4_000_000
MAX_NESTING = 100


def read_text(path: Path) -> tuple[str, bool]:
    """Return a file's text and whether it is YAML by its suffix.

    Raises:
        DocumentError: it cannot be read, is too large, or is not UTF-8.
    """
    is_yaml = path.suffix.lower() in {".yaml", ".yml"}
    limit = MAX_YAML_BYTES if is_yaml else MAX_JSON_BYTES
    try:
        size = path.stat().st_size
        if size > limit:
            raise DocumentError(f"{path} has {size} bytes; the limit for this format is {limit}.", path=str(path))
        return path.read_bytes().decode("utf-8-sig"), is_yaml
    except OSError as problem:
        raise DocumentError(f"{path} cannot be read: {problem.strerror}.", path=str(path)) from problem
    except UnicodeDecodeError as problem:
        raise DocumentError(f"{path} is not UTF-8 text (byte {problem.start}).", path=str(path)) from problem


def parse(text: str, where: str, *, is_yaml: bool | None = None) -> Json:
    """Return the plain value of JSON or YAML text; None decides by the first character.

    Raises:
        DocumentError: naming line and column.
    """
    if is_yaml is None:
        is_yaml = text.lstrip()[:1] not in {"{", "["}
    limit = MAX_YAML_BYTES if is_yaml else MAX_JSON_BYTES
    if len(text) > limit:
        raise DocumentError(f"{where} has {len(text)} characters; the limit for this format is {limit}.")
    return _parse_yaml(text, where) if is_yaml else _parse_json(text, where)


def _parse_json(text: str, where: str) -> Json:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as problem:
        raise DocumentError(f"{where}, line {problem.lineno}, column {problem.colno}: {problem.msg}.") from problem
    except RecursionError as problem:
        raise DocumentError(f"{where} is nested too deeply.") from problem
    except _RepeatedKey as problem:
        line = _line_of_second(text, problem.key)
        raise DocumentError(f"{where}{line}: the key {problem.key!r} comes twice; ids are unique.") from problem
    except _NotJson as problem:
        raise DocumentError(f"{where} holds {problem}, which JSON cannot.") from problem


class _RepeatedKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class _NotJson(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKey(key)
            seen.add(key)
    return made


def _refuse_constant(name: str) -> Json:
    raise _NotJson(name)


def _line_of_second(text: str, key: str) -> str:
    places = [match.start() for match in re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text)]
    return f", line {text.count(chr(10), 0, places[1]) + 1}" if len(places) > 1 else ""


def _parse_yaml(text: str, where: str) -> Json:
    import yaml  # only who reads YAML pays for it

    try:
        _check_events(text, where)
        return yaml.load(text, Loader=_plain_loader())  # noqa: S506 — a safe loader with fewer tags
    except yaml.MarkedYAMLError as problem:
        mark: Json = problem.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise DocumentError(f"{where}{place}: {problem.problem or problem.context}.") from problem
    except yaml.YAMLError as problem:
        raise DocumentError(f"{where} is not YAML: {' '.join(str(problem).split())}.") from problem
    except RecursionError as problem:
        raise DocumentError(f"{where} is nested too deeply.") from problem


def _check_events(text: str, where: str) -> None:
    import yaml

    depth = 0
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise DocumentError(
                f"{where}, line {_line(event)}: the alias *{event.anchor} is not allowed; write it out."
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_NESTING:
                raise DocumentError(f"{where}, line {_line(event)}: nested deeper than {MAX_NESTING} levels.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(event: Json) -> int:
    number: int = event.start_mark.line + 1
    return number


def _plain_loader() -> Json:
    """Return a safe loader for which dates are texts, only true and false are booleans, and no key comes twice."""
    import yaml

    safe: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class PlainLoader(safe):  # type: ignore[valid-type,misc]
        """JSON's values and nothing else."""

    refused = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool"}
    PlainLoader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in refused]
        for first, resolvers in safe.yaml_implicit_resolvers.items()
    }
    PlainLoader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )

    def mapping(loader: Json, node: Json) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is not a text", key_node.start_mark
                )
            if key in made:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} comes twice", key_node.start_mark)
            made[key] = loader.construct_object(value_node, deep=True)
        return made

    PlainLoader.add_constructor("tag:yaml.org,2002:map", mapping)
    return PlainLoader
