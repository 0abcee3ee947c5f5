"""Hold a reply against a schema: what fits at once, what fits after a harmless change, and what must be asked again.

Called by `llm.completion`. Pure. Only changes that cannot change an action's meaning are made, each logged:

    key_spelling       `nextAction`, `Next Action` for `next_action`, when exactly one field is meant
    choice_spelling    `"Finish"`, `"FINISH()"` for an allowed value, when exactly one is meant
    single_item_list   a list of one where an object is meant         item_as_list   an object where a list is meant
    encoded_value      a JSON string where an object or list is meant  null_as_empty  null where text is meant
    narration_dropped  an unknown field that only narrates (`comment`, `reasoning` …)

A missing action, an unknown action field, a wrong type: refused, with one line that names the field.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from starloom.llm.replies import Finish, Unreadable, parse_reply

Json: TypeAlias = Any
T = TypeVar("T", bound=BaseModel)

NARRATION = {
    *(
        "comment",
        "comments",
        "note",
        "notes",
        "thought",
        "thoughts",
        "thinking",
        "reasoning",
        "rationale",
        "explanation",
    ),
    *(
        "observation",
        "analysis",
        "reason",
        "summary",
        "confidence",
        "message",
        "description",
        "title",
        "schema",
        "type",
    ),
}
_MAX_CHANGES = 12
_WRAPPERS = frozenset(
    (
        *("arguments", "parameters", "input", "args", "response", "result", "output", "final_result", "properties"),
        *("tool_calls", "tool_call", "message", "content"),
    )
)


@dataclass(frozen=True, slots=True)
class Fitted(Generic[T]):
    """A validated reply and the repairs that it needed, those of the text first."""

    value: T
    repairs: tuple[str, ...]


_LABELS = frozenset(("name", "id", "type", "function", "tool_name", "role", "index"))


def read_reply(text: str, schema: type[T], finish: Finish = "unknown") -> Fitted[T] | Unreadable:
    """Return the reply as `schema`, or why it cannot be used, in a line that the model understands."""
    parsed = parse_reply(text, finish)
    if isinstance(parsed, Unreadable):
        return parsed
    outcomes = [fit(value, schema) for value in parsed.values]
    good = [outcome for outcome in outcomes if isinstance(outcome, Fitted)]
    distinct = [item for index, item in enumerate(good) if all(item.value != other.value for other in good[:index])]
    if len(distinct) > 1:
        return Unreadable("the reply holds several different answers; give exactly one")
    if not distinct:
        return next(outcome for outcome in outcomes if isinstance(outcome, Unreadable))
    return Fitted(distinct[0].value, (*parsed.repairs, *distinct[0].repairs))


def fit(value: Json, schema: type[T]) -> Fitted[T] | Unreadable:
    """Return the value as `schema` after as few harmless changes as it takes."""
    repairs: list[str] = []
    value = json.loads(json.dumps(value))
    value = _unwrapped(value, schema, repairs)
    if _respell(value, schema):
        repairs.append("key_spelling")
    for _ in range(_MAX_CHANGES):
        try:
            return Fitted(schema.model_validate(value), tuple(repairs))
        except ValidationError as error:
            errors = error.errors(include_url=False)
            for item in errors:
                value, name = _change(value, item["loc"], item["type"], item.get("ctx", {}))
                if name:
                    repairs += [name] * (name not in repairs)
                    break
            else:
                return Unreadable(_one_line(errors))
    return Unreadable("the reply needs too many changes to fit the schema")


def _unwrapped(value: Json, schema: type[BaseModel], repairs: list[str]) -> Json:
    """Take a tool call's envelope off: `{"name": "final_result", "arguments": {…}}`, `{"response": {…}}`."""
    fields = _known_keys(schema)
    for _ in range(6):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
            repairs.append("single_item_list")
            continue
        if not isinstance(value, dict) or set(value) & fields:
            break
        inner_keys = [key for key in value if key in _WRAPPERS]
        others = set(value) - set(inner_keys) - _LABELS
        if isinstance(value.get("function"), dict) and not others:
            value = value["function"]
        elif len(inner_keys) == 1 and not others:
            value = _decoded(value[inner_keys[0]])
        else:
            break
        repairs += ["envelope"] * ("envelope" not in repairs)
    return value


def _known_keys(schema: type[BaseModel]) -> set[str]:
    keys = set(schema.model_fields)
    for item in schema.model_fields.values():
        alias = item.validation_alias
        choices = getattr(alias, "choices", (alias,))
        keys |= {choice for choice in (item.alias, *choices) if isinstance(choice, str)}
    return keys


def _respell(value: Json, annotation: object) -> bool:
    """Rename, all the way down, each unknown key that spells exactly one known field differently."""
    if isinstance(value, list):
        respelt = [_respell(item, annotation) for item in value]
        return any(respelt)
    if not isinstance(value, dict):
        return False
    changed = False
    models = list(_models_in(annotation))
    known = set().union(*(_known_keys(model) for model in models)) if models else set()
    for key in [key for key in value if key not in known]:
        meant = [name for name in known if _plain(name) == _plain(key) and name not in value]
        if len(meant) == 1:
            value[meant[0]] = value.pop(key)
            changed = True
    for model in models:
        for name, item in model.model_fields.items():
            if name in value and _respell(value[name], item.annotation):
                changed = True
    return changed


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation allows: itself, or inside a list, a union or an optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not dict:
        for inner in get_args(annotation):
            yield from _models_in(inner)


def _change(value: Json, location: Sequence[str | int], kind: str, context: dict[str, Any]) -> tuple[Json, str | None]:
    """Make one harmless change for one error; the name of the change, or None when there is none to make."""
    parent, key = _parent_of(value, location)
    if kind == "missing":
        return value, None
    if kind == "extra_forbidden":
        if isinstance(parent, dict) and _plain(str(key)) in NARRATION and not isinstance(parent[key], dict | list):
            del parent[key]
            return value, "narration_dropped"
        return value, None
    change, name = _harmless(value if parent is None else parent[key], kind, context)
    if name is None:
        return value, None
    if parent is None:
        return change, name
    parent[key] = change
    return value, name


def _harmless(here: Json, kind: str, context: dict[str, Any]) -> tuple[Json, str | None]:
    if kind in ("model_type", "model_attributes_type", "dict_type", "dict_attributes_type"):
        if isinstance(here, list) and len(here) == 1 and isinstance(here[0], dict):
            return here[0], "single_item_list"
        decoded = _decoded(here)
        return (decoded, "encoded_value") if isinstance(decoded, dict | list) and decoded is not here else (here, None)
    if kind in ("list_type", "tuple_type"):
        decoded = _decoded(here)
        if isinstance(decoded, list) and decoded is not here:
            return decoded, "encoded_value"
        if isinstance(here, dict):
            return [here], "item_as_list"
        return ([], "null_as_empty") if here is None else (here, None)
    if kind in ("enum", "literal_error") and isinstance(here, str):
        allowed = re.findall(r"'((?:[^'\\]|\\.)*)'", str(context.get("expected", "")))
        meant = [choice for choice in allowed if _plain(choice) == _plain(here)]
        return (meant[0], "choice_spelling") if len(meant) == 1 else (here, None)
    if kind == "string_type" and here is None:
        return "", "null_as_empty"
    return here, None


def _parent_of(value: Json, location: Sequence[str | int]) -> tuple[Any, Any]:
    """Walk to the container of the error's place; union tags in the location are stepped over."""
    parent: Any = None
    key: str | int | None = None
    here: Any = value
    for step in location:
        in_mapping = isinstance(here, dict) and step in here
        in_list = isinstance(here, list) and isinstance(step, int) and step < len(here)
        if in_mapping or in_list:
            parent, key, here = here, step, here[step]
    return parent, key


def _decoded(value: Json) -> Json:
    """Return what a JSON string holds when it holds an object or a list; else the value itself."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        parsed = parse_reply(value)
        if not isinstance(parsed, Unreadable) and len(parsed.values) == 1:
            return parsed.values[0]
    return value


def _plain(text: str) -> str:
    return re.sub(r"\(\s*\)$|[^\w]|_", "", text.strip()).casefold()


def _one_line(errors: Sequence[ErrorDetails]) -> str:
    first = errors[0]
    place = ".".join(str(step) for step in first["loc"]) or "the reply"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{place}: {first['msg']}{more}"
