"""The fleet as an agent's hands: commands of one attempt, sent to its device.

Fits `processing.dispatch.CommandDispatcher`; made by the executor for each attempt with a goal.
"""

from collections.abc import Sequence

from starloom.aip import messages
from starloom.errors import DeviceError
from starloom.fleet.fleet import Fleet
from starloom.orchestrator.ports import Attempt
from starloom.processing.dispatch import Command, CommandResult, CommandStatus


class FleetDispatcher:
    """Sends an agent's commands to the attempt's device."""

    def __init__(self, fleet: Fleet, attempt: Attempt) -> None:
        self._fleet = fleet
        self._attempt = attempt

    async def execute_commands(
        self, commands: Sequence[Command], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """Return one result a command, in order; a lost device fails them all, in words the model can use."""
        wire = [
            messages.Command(
                tool_name=command.tool,
                tool_type="action",
                parameters=command.arguments,
                call_id=f"{self._attempt.attempt_id}/{command.call_id}",  # so that effects are known by their run
            )
            for command in commands
        ]
        try:
            results = await self._fleet.call(
                self._attempt.device_id,
                wire,
                session_id=str(self._attempt.attempt_id),
                task_name=self._attempt.task_id,
                timeout_s=timeout_s,
            )
        except DeviceError as error:
            return [CommandResult(command.call_id, CommandStatus.FAILURE, error=error.message) for command in commands]
        return [
            CommandResult(command.call_id, _status(result), result.result, result.error)
            for command, result in zip(commands, results, strict=True)
        ]


def _status(result: messages.Result) -> CommandStatus:
    match result.status:
        case messages.ResultStatus.SUCCESS:
            return CommandStatus.SUCCESS
        case messages.ResultStatus.SKIPPED:
            return CommandStatus.SKIPPED
        case _:
            return CommandStatus.FAILURE
