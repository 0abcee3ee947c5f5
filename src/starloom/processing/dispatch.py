"""The port through which an agent's actions leave the hub: commands out, one result each back.

Strategies call it; the composition root fits a device of the fleet (or a test's tools) to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = Any  # a JSON value: None, bool, int, float, str, list[Json] or dict[str, Json]


class CommandStatus(StrEnum):
    """How a command ended. `skipped`: it was never started."""

    SUCCESS = "success"
    FAILURE = "failure"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Command:
    """One tool call for a device; `tool` is the qualified name (`files.read`).

    Attributes:
        call_id: its name; with `once`, unique among all calls of the goal and the same after a restart.
        once: an effect is wanted once: asked for again by the same name, it is not carried out again.
        sent: an earlier life may have sent it already.
        withheld: its arguments are no longer known as they were, so it must not be carried out any more.
    """

    tool: str
    arguments: dict[str, Json] = field(default_factory=dict)
    call_id: str = ""
    once: bool = False
    sent: bool = False
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's end: `result` when it succeeded, `error` when it did not."""

    call_id: str
    status: CommandStatus
    result: Json = None
    error: str | None = None


class CommandDispatcher(Protocol):
    """Carries commands to one device."""

    async def execute_commands(
        self, commands: Sequence[Command], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """Return one result a command, in order; a failed tool is a result, never an exception.

        When cancelled, stop the work on the device first, then let `CancelledError` out.

        Raises:
            DeviceError: the device cannot be reached at all.
        """
        ...
