"""`TaskStar`: a node of the constellation, its description and its state. Made by anyone, moved by its constellation.

What a task *is* is one frozen `TaskSpec`, replaced as a whole by an edit; what has *happened* to it are the other
attributes, which only `TaskConstellation` writes. Setting a description on a star that belongs to a constellation is
refused: an edit must pass through the editor, so that it is checked, counted and recorded.
Source: seed 4 §3.1 for names and defaults; ours: `idempotent`, `replan`, `cancel_reason`, `attempt`.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starloom.constellation import fields
from starloom.constellation.enums import CancelReason, DeviceType, TaskPriority, TaskStatus
from starloom.constellation.problems import ConstellationError, EditError
from starloom.constellation.references import references_in
from starloom.constellation.values import Json
from starloom.ids import TaskId

if TYPE_CHECKING:
    from starloom.constellation.line import TaskStarLine


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task is, checked. `references` are the tasks whose results its words and arguments name."""

    name: str = ""
    description: str = ""
    tips: tuple[str, ...] = ()
    target_device_id: str | None = None
    device_type: DeviceType | None = None
    priority: TaskPriority = TaskPriority.MEDIUM
    timeout: float | None = None
    retry_count: int = 0
    task_data: dict[str, Any] = field(default_factory=dict)
    expected_output_type: str | dict[str, Any] | None = None
    idempotent: bool = False
    replan: bool = False
    references: frozenset[str] = frozenset()


SPEC_FIELDS = frozenset(TaskSpec.__dataclass_fields__) - {"references"}


def task_spec(given: Mapping[str, Any], base: TaskSpec | None = None) -> TaskSpec:
    """Return the checked description: `base` (or the defaults) with the given fields.

    Raises:
        FieldProblem: a field is unknown or its value is wrong; named.
        ReferenceProblem: a reference cannot be read.
    """
    fields.refuse_unknown(given, SPEC_FIELDS, "A task")
    values: dict[str, Any] = {} if base is None else {name: getattr(base, name) for name in SPEC_FIELDS}
    for name, value in given.items():
        values[name] = _READERS[name](value, name)
    if values.get("description") or values.get("tips") or values.get("task_data"):
        values["references"] = references_in(
            values.get("description", ""), values.get("tips", ()), values.get("task_data", {})
        )
    return TaskSpec(**values)


def _device_type(value: Json, name: str) -> DeviceType | None:
    return None if value is None else fields.word(DeviceType, value, name)


def _priority(value: Json, name: str) -> TaskPriority:
    return TaskPriority.MEDIUM if value is None else fields.word(TaskPriority, value, name)


def _output_type(value: Json, name: str) -> str | dict[str, Any] | None:
    return fields.json_object(value, name) if isinstance(value, Mapping) else fields.optional_text(value, name)


def _retries(value: Json, name: str) -> int:
    return 0 if value is None else fields.whole_number(value, name)


def _some_text(value: Json, name: str) -> str:
    return "" if value is None else fields.text(value, name)


_READERS: dict[str, Any] = {
    "name": _some_text,
    "description": _some_text,
    "tips": fields.texts,
    "target_device_id": fields.optional_text,
    "device_type": _device_type,
    "priority": _priority,
    "timeout": fields.seconds,
    "retry_count": _retries,
    "task_data": fields.json_object,
    "expected_output_type": _output_type,
    "idempotent": fields.flag,
    "replan": fields.flag,
}


class TaskStar:
    """A task. Arguments as in seed 4; a UUID is made when no `task_id` is given.

    `idempotent`: doing it twice does no harm, so it may be tried again whatever the failure.
    `replan`: its completion asks the planner to look at the rest.
    """

    __slots__ = (
        "_attempt",
        "_blocked",
        "_cancel_reason",
        "_current_retry",
        "_detail",
        "_ended_at",
        "_error",
        "_home",
        "_in",
        "_order",
        "_out",
        "_owned",
        "_position",
        "_result",
        "_spec",
        "_started_at",
        "_status",
        "_task_id",
        "_waiting",
    )

    def __init__(
        self,
        task_id: str | None = None,
        name: str = "",
        description: str = "",
        tips: list[str] | tuple[str, ...] | None = None,
        target_device_id: str | None = None,
        device_type: DeviceType | str | None = None,
        priority: TaskPriority | int | str = TaskPriority.MEDIUM,
        timeout: float | None = None,
        retry_count: int = 0,
        task_data: Mapping[str, Any] | None = None,
        expected_output_type: str | Mapping[str, Any] | None = None,
        *,
        idempotent: bool = False,
        replan: bool = False,
    ) -> None:
        spec = task_spec(
            {
                "name": name,
                "description": description,
                "tips": tips,
                "target_device_id": target_device_id,
                "device_type": device_type,
                "priority": priority,
                "timeout": timeout,
                "retry_count": retry_count,
                "task_data": task_data,
                "expected_output_type": expected_output_type,
                "idempotent": idempotent,
                "replan": replan,
            }
        )
        self._begin(fields.optional_text(task_id, "task_id") or str(uuid.uuid4()), spec)

    @classmethod
    def from_spec(cls, task_id: str, spec: TaskSpec) -> "TaskStar":
        """Return a fresh task of an already checked description."""
        star = cls.__new__(cls)
        star._begin(task_id, spec)
        return star

    def _begin(self, task_id: str, spec: TaskSpec) -> None:
        self._task_id = TaskId(task_id)
        self._spec = spec
        self._status = TaskStatus.PENDING
        self._result: Any = None
        self._error: str | None = None
        self._cancel_reason: CancelReason | None = None
        self._detail = ""
        self._attempt = 0
        self._current_retry = 0
        self._started_at: datetime | None = None
        self._ended_at: datetime | None = None
        self._in: dict[TaskStarLine, TaskStar] = {}  # edge → its source
        self._out: dict[TaskStarLine, TaskStar] = {}  # edge → its target
        self._waiting = 0  # incoming edges still pending
        self._blocked = 0  # incoming edges that can never be satisfied
        self._order = 0  # place in the graph's topological order
        self._position = 0  # place in the order of insertion
        self._owned = False
        self._home: object = None  # the graph whose order its `_order` is of

    @property
    def task_id(self) -> TaskId:
        """The id; never changes."""
        return self._task_id

    @property
    def spec(self) -> TaskSpec:
        """The whole description, frozen."""
        return self._spec

    @property
    def name(self) -> str:
        """The short name."""
        return self._spec.name

    @name.setter
    def name(self, value: str) -> None:
        self._change("name", value)

    @property
    def description(self) -> str:
        """What the device's agent reads."""
        return self._spec.description

    @description.setter
    def description(self, value: str) -> None:
        self._change("description", value)

    @property
    def tips(self) -> tuple[str, ...]:
        """Advice to the device's agent."""
        return self._spec.tips

    @tips.setter
    def tips(self, value: list[str] | tuple[str, ...] | None) -> None:
        self._change("tips", value)

    @property
    def target_device_id(self) -> str | None:
        """The device it must run on; None lets the scheduler choose."""
        return self._spec.target_device_id

    @target_device_id.setter
    def target_device_id(self, value: str | None) -> None:
        self._change("target_device_id", value)

    @property
    def device_type(self) -> DeviceType | None:
        """The kind of device it needs."""
        return self._spec.device_type

    @device_type.setter
    def device_type(self, value: DeviceType | str | None) -> None:
        self._change("device_type", value)

    @property
    def priority(self) -> TaskPriority:
        """Who goes first among ready tasks."""
        return self._spec.priority

    @priority.setter
    def priority(self, value: TaskPriority | int | str) -> None:
        self._change("priority", value)

    @property
    def timeout(self) -> float | None:
        """Seconds from dispatch; None is the run's default."""
        return self._spec.timeout

    @property
    def retry_count(self) -> int:
        """How many more tries a failure may have."""
        return self._spec.retry_count

    @property
    def task_data(self) -> dict[str, Any]:
        """The payload; do not change it in place."""
        return self._spec.task_data

    @task_data.setter
    def task_data(self, value: Mapping[str, Any] | None) -> None:
        self._change("task_data", value)

    @property
    def expected_output_type(self) -> str | dict[str, Any] | None:
        """A word (`json`, `xlsx`) or a JSON Schema that the result must match."""
        return self._spec.expected_output_type

    @property
    def status(self) -> TaskStatus:
        """Where it stands."""
        return self._status

    @property
    def result(self) -> Json:
        """The JSON value it completed with."""
        return self._result

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self._error

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why it was cancelled; None unless it was."""
        return self._cancel_reason

    @property
    def detail(self) -> str:
        """More about a cancellation: the edge or the person."""
        return self._detail

    @property
    def attempt(self) -> int:
        """The number of the newest attempt; 0 before the first."""
        return self._attempt

    @property
    def current_retry(self) -> int:
        """How many retries it has used."""
        return self._current_retry

    @property
    def execution_start_time(self) -> datetime | None:
        """When the newest attempt started, aware UTC."""
        return self._started_at

    @property
    def execution_end_time(self) -> datetime | None:
        """When it ended, aware UTC."""
        return self._ended_at

    @property
    def execution_duration(self) -> float | None:
        """Seconds between the two; None before both are known."""
        if self._started_at is None or self._ended_at is None:
            return None
        return (self._ended_at - self._started_at).total_seconds()

    @property
    def position(self) -> int:
        """Its place in the order of insertion."""
        return self._position

    @property
    def has_started(self) -> bool:
        """Whether it runs, has run or has ended: then it is immutable (I3)."""
        return self._attempt > 0 or self._status.is_terminal

    @property
    def lines_in(self) -> tuple["TaskStarLine", ...]:
        """The edges into it."""
        return tuple(self._in)

    @property
    def lines_out(self) -> tuple["TaskStarLine", ...]:
        """The edges out of it."""
        return tuple(self._out)

    @property
    def dependencies(self) -> set[TaskId]:
        """The ids of its direct predecessors."""
        return {line.from_task_id for line in self._in}

    @property
    def dependents(self) -> set[TaskId]:
        """The ids of its direct successors."""
        return {line.to_task_id for line in self._out}

    def inputs(self) -> "dict[TaskId, Json]":
        """Return the results of its direct predecessors."""
        return {before._task_id: before._result for before in self._in.values()}

    def predecessors(self) -> "list[TaskStar]":
        """Return its direct predecessors, once per edge."""
        return list(self._in.values())

    def successors(self) -> "list[TaskStar]":
        """Return its direct successors, once per edge."""
        return list(self._out.values())

    def _change(self, name: str, value: Json) -> None:
        if self.has_started:
            raise EditError(f"Task {self._task_id!r} is {self._status.value}; its {name} can no longer change.")
        if self._owned:
            raise ConstellationError(
                f"Task {self._task_id!r} belongs to a constellation; change its {name} with "
                f"editor.update_task({self._task_id!r}, {name}=…)."
            )
        self._spec = task_spec({name: value}, self._spec)

    def __repr__(self) -> str:
        return f"TaskStar({self._task_id!r}, name={self.name!r}, status={self._status.value!r})"
