"""`Context`: what all rounds and agents of one session share, by checked names.

One instance a session; nothing in it is shared with another. Called by `session`, `agents` and middleware.
The dictionaries per round are the only store of the current round's step, cost and subtask count, so that the two
can never differ: the `CURRENT_ROUND_*` names read from and write to the entry at `CURRENT_ROUND_ID`.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from difflib import get_close_matches

from starloom.processing.dispatch import CommandDispatcher
from starloom.processing.names import ROUND_TOTALS, SHAPES, ContextNames, Value, WeavingMode, empty_logs


class Context:
    """A session's shared state. Every name has a default; every write is checked."""

    def __init__(self) -> None:
        self._values: dict[ContextNames, Value] = {
            name: name.default_value for name in ContextNames if name not in ROUND_TOTALS
        }
        self.command_dispatcher: CommandDispatcher | None = None

    def get(self, name: ContextNames | str) -> Value:
        """Return the value, or its default when it was never set. Reading changes nothing.

        Raises:
            KeyError: no such name.
        """
        key = _resolve(name)
        if key in ROUND_TOTALS:
            return self._round_total(key)
        return self._values[key]

    def set(self, name: ContextNames | str, value: Value) -> None:
        """Replace the value; for a `CURRENT_ROUND_*` name, the current round's entry of its dictionary.

        Raises:
            KeyError: no such name.
            TypeError: the value is of the wrong type; the message names the field.
        """
        key = _resolve(name)
        checked = _checked(key, value)
        if key in ROUND_TOTALS:
            self._dict(ROUND_TOTALS[key])[self.current_round_id] = checked
        else:
            self._values[key] = checked

    def update_dict(self, name: ContextNames | str, value: Mapping[Value, Value]) -> None:
        """Merge entries into a dictionary-valued name.

        Raises:
            KeyError: no such name.
            TypeError: the name or the value is not a dictionary, or an entry is of the wrong type.
        """
        key = _resolve(name)
        if SHAPES[key].kind is not dict or not hasattr(value, "items"):
            raise TypeError(f"{key.name} cannot be merged: update_dict needs a dictionary on both sides.")
        self._dict(key).update(_checked_dict(key, value))

    def text(self, name: ContextNames) -> str:
        """Return a text-valued name's value, typed as text."""
        value = self.get(name)
        if not isinstance(value, str):
            raise TypeError(f"{name.name} holds {type(value).__name__}, not text.")
        return value

    @property
    def current_round_id(self) -> int:
        """The number of the round that is running, from 0."""
        value = self._values[ContextNames.CURRENT_ROUND_ID]
        assert isinstance(value, int)  # noqa: S101 - `set` has checked it
        return value

    @property
    def current_round_step(self) -> int:
        """Steps of the current round so far."""
        return int(self._round_total(ContextNames.CURRENT_ROUND_STEP))

    @current_round_step.setter
    def current_round_step(self, value: int) -> None:
        self.set(ContextNames.CURRENT_ROUND_STEP, value)

    @property
    def current_round_cost(self) -> float:
        """US dollars that the current round has cost so far."""
        return self._round_total(ContextNames.CURRENT_ROUND_COST)

    @current_round_cost.setter
    def current_round_cost(self, value: float) -> None:
        self.set(ContextNames.CURRENT_ROUND_COST, value)

    @property
    def current_round_subtask_amount(self) -> int:
        """Subtasks that have ended in the current round."""
        return int(self._round_total(ContextNames.CURRENT_ROUND_SUBTASK_AMOUNT))

    @current_round_subtask_amount.setter
    def current_round_subtask_amount(self, value: int) -> None:
        self.set(ContextNames.CURRENT_ROUND_SUBTASK_AMOUNT, value)

    def attach_command_dispatcher(self, command_dispatcher: CommandDispatcher) -> None:
        """Let rounds and agents act through this dispatcher; a second one replaces the first."""
        self.command_dispatcher = command_dispatcher

    def add_to_structural_logs(self, data: Mapping[str, Value]) -> None:
        """File a record under its own `Round` and `SubtaskIndex`; one without both is not kept. Source: seed 2."""
        round_key, subtask_key = data.get("Round"), data.get("SubtaskIndex")
        if round_key is None or subtask_key is None:
            return
        rounds = self._dict(ContextNames.STRUCTURAL_LOGS)
        subtasks = rounds.setdefault(round_key, {})
        if not isinstance(subtasks, dict):
            raise TypeError(f"STRUCTURAL_LOGS of round {round_key!r} is not a dictionary of subtasks.")
        subtasks.setdefault(subtask_key, []).append(dict(data))

    def filter_structural_logs(
        self, round_key: int, subtask_key: int, keys: str | list[str]
    ) -> list[Value] | list[dict[str, Value]]:
        """Return one field of each record of a subtask (`keys` is text), or a dictionary of several; in order.

        Raises:
            KeyError: a record lacks one of the fields.
        """
        subtasks = self._dict(ContextNames.STRUCTURAL_LOGS).get(round_key, {})
        records = subtasks.get(subtask_key, []) if isinstance(subtasks, dict) else []
        if isinstance(keys, str):
            return [record[keys] for record in records]
        return [{key: record[key] for key in keys} for record in records]

    def to_dict(self, ensure_serializable: bool = False) -> dict[str, Value]:
        """Return all thirty names with their values; containers are copies, other objects are the same.

        Args:
            ensure_serializable: put None where a value has no JSON form (loggers, windows), so that the result
                can be written and read back with `from_dict`.
        """
        values = {name.name: _copied(self.get(name)) for name in ContextNames}
        if ensure_serializable:
            return {name: value if _is_json(value) else None for name, value in values.items()}
        return values

    def from_dict(self, data: Mapping[str, Value]) -> None:
        """Replace everything by what `to_dict` gave, also after a trip through JSON; missing names get defaults.

        All or nothing: when one value is refused, the context is as before.

        Raises:
            KeyError: an unknown name.
            TypeError: a value of the wrong type; the message names the field.
        """
        fresh = Context()
        given = {_resolve(name): value for name, value in data.items()}
        for name in sorted(given, key=lambda item: item in ROUND_TOTALS):  # the round's number before its totals
            value = given[name]
            if value is None and SHAPES[name].kind is not object:
                continue  # it had no JSON form
            if name in ROUND_TOTALS and ROUND_TOTALS[name] in given:
                continue  # the dictionary per round says it already
            fresh.set(name, _revived(name, value))
        self._values = fresh._values

    def _dict(self, name: ContextNames) -> dict[Value, Value]:
        value = self._values[name]
        assert isinstance(value, dict)  # noqa: S101 - `set` has checked it
        return value

    def _round_total(self, name: ContextNames) -> float:
        value = self._dict(ROUND_TOTALS[name]).get(self.current_round_id, SHAPES[name].make_default())
        assert isinstance(value, int | float)  # noqa: S101 - `set` and `update_dict` have checked it
        return value


def _resolve(name: ContextNames | str) -> ContextNames:
    if isinstance(name, ContextNames):
        return name
    try:
        return ContextNames[name]
    except (KeyError, TypeError) as error:
        near = get_close_matches(str(name).upper(), [member.name for member in ContextNames], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise KeyError(f"The context has no name {name!r}.{hint}") from error


def _checked(name: ContextNames, value: Value) -> Value:
    """Return the value to store, or raise TypeError naming the field."""
    wanted = SHAPES[name].kind
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is WeavingMode and isinstance(value, str) and value in list(WeavingMode):
        return WeavingMode(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted in (int, float)):
        raise TypeError(f"{name.name} takes {wanted.__name__}, not {type(value).__name__} ({value!r}).")
    if isinstance(value, list):
        return list(value)  # the caller's list stays the caller's
    return _checked_dict(name, value) if isinstance(value, dict) else value


def _checked_dict(name: ContextNames, value: Mapping[Value, Value]) -> dict[Value, Value]:
    item = SHAPES[name].per_round
    if item is None:
        return value if isinstance(value, defaultdict) else dict(value)
    checked: dict[Value, Value] = {}
    for key, amount in value.items():
        if type(key) is not int:
            raise TypeError(f"{name.name} is keyed by round numbers, not by {key!r}.")
        if type(amount) is not int and not (item is float and isinstance(amount, float)):
            raise TypeError(f"{name.name}[{key}] takes {item.__name__}, not {type(amount).__name__} ({amount!r}).")
        checked[key] = item(amount)
    return checked


def _copied(value: Value) -> Value:
    """Return containers as new plain ones, everything else as it is."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _is_json(value: Value) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _revived(name: ContextNames, value: Value) -> Value:
    """Give back what JSON took: numbers as keys, the nested defaults of the logs."""
    if not isinstance(value, dict):
        return value
    if SHAPES[name].per_round is not None:
        return {_number(key): item for key, item in value.items()}
    if name is ContextNames.STRUCTURAL_LOGS:
        logs = empty_logs()
        for round_key, subtasks in value.items():
            for subtask_key, records in subtasks.items():
                logs[_number(round_key)][_number(subtask_key)].extend(records)
        return logs
    return value


def _number(key: Value) -> int:
    """Return a round's or subtask's number from its JSON key; anything else is left for the check to refuse."""
    return int(key) if isinstance(key, str) and key.lstrip("-").isdigit() else key  # type: ignore[return-value]
