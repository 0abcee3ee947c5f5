"""`TaskStarLine`: an edge of the constellation, what it demands and what it has come to.

Made by anyone; its outcome is written only by its constellation. What an edge means is the table in
constellation.md, Edges: it depends on the status of its source and, for `conditional`, on an expression.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starloom.constellation import fields
from starloom.constellation.conditions import check_condition
from starloom.constellation.enums import DependencyType, EdgeOutcome, TaskStatus
from starloom.constellation.fields import FieldProblem
from starloom.constellation.values import Json
from starloom.ids import LineId, TaskId

if TYPE_CHECKING:
    from starloom.constellation.star import TaskStar


@dataclass(frozen=True, slots=True)
class LineSpec:
    """What an edge is, checked. `condition` is set exactly when the type is `conditional`."""

    dependency_type: DependencyType = DependencyType.UNCONDITIONAL
    condition_description: str = ""
    condition: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


_PLAIN = {kind: LineSpec(kind) for kind in DependencyType}  # frozen and equal, so shared
SPEC_FIELDS = frozenset(LineSpec.__dataclass_fields__)


def line_spec(given: Mapping[str, Any], base: LineSpec | None = None) -> LineSpec:
    """Return the checked description: `base` (or the defaults) with the given fields.

    A `condition` without a type makes the edge conditional; leaving `conditional` drops the condition.

    Raises:
        FieldProblem: a field is unknown, wrong or missing; named.
    """
    fields.refuse_unknown(given, SPEC_FIELDS, "A dependency")
    old = base or LineSpec()
    condition = fields.optional_text(given.get("condition", old.condition), "condition")
    kind = old.dependency_type
    if given.get("dependency_type") is not None:
        kind = fields.word(DependencyType, given["dependency_type"], "dependency_type")
        if kind is not DependencyType.CONDITIONAL and given.get("condition") is None:
            condition = None
    elif condition is not None:
        kind = DependencyType.CONDITIONAL
    if kind is DependencyType.CONDITIONAL and condition is None:
        raise FieldProblem(
            "condition is missing: a conditional dependency needs one, such as \"status == 'completed'\"."
        )
    if kind is not DependencyType.CONDITIONAL and condition is not None:
        raise FieldProblem(f"condition is set, but dependency_type is {kind.value}; only conditional edges have one.")
    if condition is not None:
        check_condition(condition)
    if condition is None and not given.get("condition_description") and not given.get("metadata") and base is None:
        return _PLAIN[kind]
    return LineSpec(
        dependency_type=kind,
        condition_description=fields.text(
            given.get("condition_description", old.condition_description) or "", "condition_description"
        ),
        condition=condition,
        metadata=fields.json_object(given.get("metadata", old.metadata), "metadata"),
    )


class TaskStarLine:
    """An edge. Arguments as in seed 4; without a `line_id` it is named after its ends when it is added."""

    __slots__ = (
        "_error",
        "_from",
        "_line_id",
        "_named",
        "_outcome",
        "_owned",
        "_position",
        "_source",
        "_spec",
        "_target",
        "_to",
    )

    def __init__(
        self,
        from_task_id: str,
        to_task_id: str,
        dependency_type: DependencyType | str | None = None,
        condition_description: str = "",
        condition: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        line_id: str | None = None,
    ) -> None:
        spec = line_spec(
            {
                "dependency_type": dependency_type,
                "condition_description": condition_description,
                "condition": condition,
                "metadata": metadata,
            }
        )
        self._begin(from_task_id, to_task_id, spec, line_id)

    @classmethod
    def from_spec(
        cls, from_task_id: str, to_task_id: str, spec: LineSpec, line_id: str | None = None
    ) -> "TaskStarLine":
        """Return a fresh edge of an already checked description."""
        line = cls.__new__(cls)
        line._begin(from_task_id, to_task_id, spec, line_id)
        return line

    def _begin(self, from_task_id: Json, to_task_id: Json, spec: LineSpec, line_id: Json) -> None:
        self._from = TaskId(end_of(from_task_id, "from_task_id"))
        self._to = TaskId(end_of(to_task_id, "to_task_id"))
        given = fields.optional_text(line_id, "line_id")
        self._named = given is not None
        self._line_id = LineId(given or f"{self._from}->{self._to}")
        self._spec = spec
        self._outcome = EdgeOutcome.PENDING
        self._error: str | None = None
        self._position = 0
        self._owned = False
        self._source: TaskStar | None = None
        self._target: TaskStar | None = None

    @property
    def line_id(self) -> LineId:
        """The id; fixed once the edge is in a constellation."""
        return self._line_id

    @property
    def from_task_id(self) -> TaskId:
        """The task it comes from."""
        return self._from

    @property
    def to_task_id(self) -> TaskId:
        """The task it leads to."""
        return self._to

    @property
    def spec(self) -> LineSpec:
        """The whole description, frozen."""
        return self._spec

    @property
    def dependency_type(self) -> DependencyType:
        """What it demands of its source."""
        return self._spec.dependency_type

    @property
    def condition(self) -> str | None:
        """The expression of a conditional edge."""
        return self._spec.condition

    @property
    def condition_description(self) -> str:
        """The condition in words."""
        return self._spec.condition_description

    @property
    def metadata(self) -> dict[str, Any]:
        """Free notes; do not change them in place."""
        return self._spec.metadata

    @property
    def outcome(self) -> EdgeOutcome:
        """What it has come to."""
        return self._outcome

    @property
    def error(self) -> str | None:
        """Why its condition could not be decided."""
        return self._error

    @property
    def position(self) -> int:
        """Its place in the order of insertion."""
        return self._position

    @property
    def is_satisfied(self) -> bool:
        """Whether its target may start as far as this edge goes."""
        return self._outcome is EdgeOutcome.SATISFIED

    def __repr__(self) -> str:
        return f"TaskStarLine({self._line_id!r}, {self.dependency_type.value}, {self._outcome.value})"


def outcome_of(kind: DependencyType, status: TaskStatus) -> EdgeOutcome | None:
    """Return what an edge of this type says when its source has this status; None: its condition must be asked."""
    if not status.is_terminal:
        return EdgeOutcome.PENDING
    return _OUTCOMES[kind, status]


_YES, _NO = EdgeOutcome.SATISFIED, EdgeOutcome.UNSATISFIABLE
_OUTCOMES: dict[tuple[DependencyType, TaskStatus], EdgeOutcome | None] = {
    (DependencyType.UNCONDITIONAL, TaskStatus.COMPLETED): _YES,
    (DependencyType.UNCONDITIONAL, TaskStatus.FAILED): _YES,
    (DependencyType.UNCONDITIONAL, TaskStatus.CANCELLED): _YES,
    (DependencyType.COMPLETION_ONLY, TaskStatus.COMPLETED): _YES,
    (DependencyType.COMPLETION_ONLY, TaskStatus.FAILED): _YES,
    (DependencyType.COMPLETION_ONLY, TaskStatus.CANCELLED): _NO,
    (DependencyType.SUCCESS_ONLY, TaskStatus.COMPLETED): _YES,
    (DependencyType.SUCCESS_ONLY, TaskStatus.FAILED): _NO,
    (DependencyType.SUCCESS_ONLY, TaskStatus.CANCELLED): _NO,
    (DependencyType.CONDITIONAL, TaskStatus.COMPLETED): None,
    (DependencyType.CONDITIONAL, TaskStatus.FAILED): None,
    (DependencyType.CONDITIONAL, TaskStatus.CANCELLED): _NO,
}


def end_of(value: Json, name: str) -> str:
    """Return the id at one end of an edge; refuse a missing one."""
    if value is None or value == "":
        raise FieldProblem(f"{name} is missing: a dependency has two ends.")
    return fields.text(value, name)
