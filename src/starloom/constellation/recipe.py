r"""Recipes: constellations with typed parameters that run again with other values and no model.

For the CLI and the session. A recipe is `name`, `parameters`, `tasks`, `dependencies`; `{{ parameters.month }}` stands
anywhere in its texts and arguments. Alone in its string a parameter keeps its type; inside a longer one it is text.

    parameters: {month: {type: text, default: "2026-10", pattern: "\d{4}-\d{2}"}, folder: {type: file}}
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from starloom.constellation import fields
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.dialects import as_object
from starloom.constellation.documents import build, read_file
from starloom.constellation.problems import ConstellationError, DocumentError
from starloom.constellation.references import as_text, follow
from starloom.constellation.values import Json

_PARAMETER = re.compile(r"\{\{\s*parameters\.(?P<name>\w+)(?P<path>(?:\.[\w\-]+|\[\d+\])*)\s*\}\}")
_KNOWN = frozenset({"type", "default", "description", "choices", "pattern", "min", "max", "required"})
_NOT_TASKS = frozenset({"parameters", "description", "recipe"})


class ParameterType(StrEnum):
    """What a parameter holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    CHOICE = "choice"
    FILE = "file"
    LIST = "list"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A typed place in a recipe. Without a default it must be given, unless `required` is false: then it is null."""

    name: str
    type: ParameterType = ParameterType.TEXT
    description: str = ""
    default: Any = None
    required: bool = True
    choices: tuple[Any, ...] = ()
    pattern: str | None = None
    min: float | None = None
    max: float | None = None

    def read(self, value: Json) -> Json:
        """Return the value as its type; text from a command line is converted.

        Raises:
            ConstellationError: it does not fit; the parameter is named.
        """
        if value is None and not self.required:
            return None
        try:
            read = _READERS[self.type](value)
        except (ValueError, TypeError) as problem:
            raise self._wrong(value, f"a value of type {self.type.value}") from problem
        if self.choices and read not in self.choices:
            raise self._wrong(value, f"one of {', '.join(map(repr, self.choices))}")
        if self.pattern is not None and re.fullmatch(self.pattern, str(read)) is None:
            raise self._wrong(value, f"a text like {self.pattern}")
        if self.min is not None and read < self.min:
            raise self._wrong(value, f"at least {self.min:g}")
        if self.max is not None and read > self.max:
            raise self._wrong(value, f"at most {self.max:g}")
        return read

    def _wrong(self, value: Json, wanted: str) -> ConstellationError:
        return ConstellationError(
            f"The parameter {self.name!r} is {value!r}; it must be {wanted}.", parameter=self.name
        )


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe as it was read. `document` still holds the places of its parameters."""

    name: str
    parameters: dict[str, Parameter]
    document: dict[str, Any] = field(repr=False)
    description: str = ""
    where: str = "recipe"

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter: the given ones, checked and converted, and the defaults.

        Raises:
            ConstellationError: one is unknown, missing or wrong; named.
        """
        fields.refuse_unknown(given, frozenset(self.parameters), f"The recipe {self.name!r}")
        values: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if name in given:
                values[name] = parameter.read(given[name])
            elif parameter.default is not None or not parameter.required:
                values[name] = parameter.default
            else:
                raise ConstellationError(f"The parameter {name!r} is missing; give it a value.", parameter=name)
        return values

    def instantiate(self, values: Mapping[str, Any]) -> TaskConstellation:
        """Return a fresh constellation with the parameters replaced; `values` are bound first.

        Raises:
            ConstellationError: a value or the resulting graph is wrong.
        """
        bound = self.bind(values)
        return build(_replace(self.document, bound), where=self.where)


def load_recipe(path: str | Path) -> Recipe:
    """Return the recipe of a YAML or JSON file; a plain constellation document is a recipe without parameters.

    Raises:
        DocumentError: naming the file and the place.
    """
    return parse_recipe(read_file(path), where=str(path))


def parse_recipe(document: Mapping[str, Any], *, where: str = "recipe") -> Recipe:
    """Return the recipe of a plain object, its parameters and their places checked.

    Raises:
        DocumentError: naming the place.
    """
    declared = as_object(document.get("parameters") or {}, f"{where}: parameters")
    parameters = {name: _parameter(name, form, where) for name, form in declared.items()}
    content = {name: value for name, value in document.items() if name not in _NOT_TASKS}
    for name in _named(content):
        if name not in parameters:
            raise DocumentError(f"{where}: {{{{ parameters.{name} }}}} is used, but parameters has no {name!r}.")
    try:
        name = fields.text(document.get("name") or document.get("recipe") or Path(where).stem, "name")
        description = fields.text(document.get("description") or "", "description")
    except ConstellationError as problem:
        raise DocumentError(f"{where}: {problem.message}") from problem
    content["name"] = name
    return Recipe(name, parameters, content, description, where)


def _parameter(name: str, form: Json, where: str) -> Parameter:
    place = f"{where}: parameter {name!r}"
    if not isinstance(form, Mapping):
        form = {"type": _type_of(form), "default": form}
    try:
        fields.refuse_unknown(form, _KNOWN, "It")
        parameter = Parameter(
            name=name,
            type=fields.word(ParameterType, form.get("type", "choice" if form.get("choices") else "text"), "type"),
            description=fields.text(form.get("description") or "", "description"),
            required=fields.flag(form.get("required", True), "required"),
            choices=tuple(fields.json_value(form.get("choices") or [], "choices")),
            pattern=fields.optional_text(form.get("pattern"), "pattern"),
            min=_bound(form.get("min"), "min"),
            max=_bound(form.get("max"), "max"),
        )
        if parameter.type is ParameterType.CHOICE and not parameter.choices:
            raise DocumentError(f"{place}: choices is missing; a choice needs them.")
        re.compile(parameter.pattern or "")
        default = form.get("default")
        if default is None:
            return parameter
        object.__setattr__(parameter, "default", parameter.read(default))
    except re.error as problem:
        raise DocumentError(f"{place}: pattern is not a regular expression: {problem}.") from problem
    except DocumentError:
        raise
    except ConstellationError as problem:
        raise DocumentError(f"{place}: {problem.message}") from problem
    return parameter


def _type_of(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    kinds: dict[type, str] = {float: "number", list: "list"}
    return kinds.get(type(value), "text")


def _bound(value: Json, name: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ConstellationError(f"{name} must be a number, not {value!r}.")
    return value


def _named(value: Json) -> list[str]:
    found: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found += [match["name"] for match in _PARAMETER.finditer(item)] if "{{" in item else []
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return found


def _replace(value: Json, values: Mapping[str, Any]) -> Json:
    if isinstance(value, str):
        whole = _PARAMETER.fullmatch(value.strip()) if "{{" in value else None
        if whole is not None:
            return _value(whole, values)
        return _PARAMETER.sub(lambda match: as_text(_value(match, values)), value) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: _replace(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(item, values) for item in value]
    return value


def _value(match: re.Match[str], values: Mapping[str, Any]) -> Json:
    return follow(values[match["name"]], match["path"], match.group())


def _read_text(value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(value)
    return str(value)


def _read_integer(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(value)
    return int(value)


def _read_number(value: Json) -> float | int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return int(number) if number == int(number) and not isinstance(value, float) else number


def _read_boolean(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[_word(value)]


def _word(value: Json) -> str:
    word = str(value).strip().lower()
    if word not in {"true", "yes", "1", "false", "no", "0"}:
        raise ValueError(value)
    return word


def _read_date(value: Json) -> str:
    return date.fromisoformat(_read_text(value)).isoformat()


def _read_choice(value: Json) -> Json:
    return fields.json_value(value, "value")


def _read_list(value: Json) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return list(fields.json_value(value, "value"))


def _read_object(value: Json) -> dict[str, Any]:
    if isinstance(value, str):
        import json

        value = json.loads(value)
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return fields.json_object(value, "value")


_READERS: dict[ParameterType, Callable[[Any], Any]] = {
    ParameterType.TEXT: _read_text,
    ParameterType.INTEGER: _read_integer,
    ParameterType.NUMBER: _read_number,
    ParameterType.BOOLEAN: _read_boolean,
    ParameterType.DATE: _read_date,
    ParameterType.CHOICE: _read_choice,
    ParameterType.FILE: _read_text,
    ParameterType.LIST: _read_list,
    ParameterType.OBJECT: _read_object,
}
