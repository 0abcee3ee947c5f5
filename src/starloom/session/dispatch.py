"""The fleet as an agent's hands: commands of one attempt, each carried to its device and its end.

Fits `processing.dispatch.CommandDispatcher`; made by the executor for each attempt with a goal. A call's id is the
attempt's and its own name, so effects are known by their run, and a restarted hub asks the device for that very call.

    the link is lost        the agent waits; when the device is back it is asked for the same call
    the device is away      for too long: the attempt is in doubt, as any (`ended` says what follows)
    the device was cut off  the call is in doubt: its effect is a person's to know, and the agent is told what they said
"""

from collections.abc import Sequence
from dataclasses import replace

from starloom.aip import messages
from starloom.errors import DeviceError
from starloom.fleet.errors import DeviceLost, DeviceOffline
from starloom.fleet.records import DeviceRecord
from starloom.ids import AttemptId
from starloom.orchestrator.ports import Attempt, Completed, Failed, Outcome
from starloom.processing.dispatch import Command, CommandResult, CommandStatus
from starloom.safety.policy import Risk
from starloom.session.carrying import Carrier
from starloom.session.profiles import tool_profile

_TOLD = "the agent is told that it had no effect, and goes on"
_TOOK_EFFECT = "It was cut off before its result was known. A person looked and says that it took effect."
_NO_EFFECT = "It was cut off. Someone decided that it counts as not done: make it again if it is still needed."
_WITHHELD = "It was cut off, and its arguments held a secret that is not kept. Make it again if it is still needed."


class FleetDispatcher:
    """Sends an agent's commands to the attempt's device.

    Args:
        carrier: carries calls through whatever happens.
        attempt: whose calls they are.
        has_acted: an earlier life may have acted for this attempt.
        losses: how often one call that only reads is made again after the device was lost with it.

    Attributes:
        ended: what becomes of the attempt, once the device or a person has ended it from outside; else None.
    """

    def __init__(self, carrier: Carrier, attempt: Attempt, *, has_acted: bool = False, losses: int = 3) -> None:
        self._carrier = carrier
        self._attempt = attempt
        self._has_acted = has_acted
        self._losses = losses
        self.ended: Outcome | None = None

    async def execute_commands(
        self, commands: Sequence[Command], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """Return one result a command, in order; after the first that fails the rest is skipped.

        Raises:
            DeviceError: the attempt is over, as `ended` says.
        """
        results: list[CommandResult] = []
        for command in commands:
            if results and results[-1].status is not CommandStatus.SUCCESS:
                results.append(CommandResult(command.call_id, CommandStatus.SKIPPED, error="one before it failed"))
            else:
                results.append(await self._carry(command, timeout_s))
        return results

    async def _carry(self, command: Command, timeout_s: float | None) -> CommandResult:
        attempt, once, sent = self._attempt, command.once, command.sent
        call_id = f"{attempt.attempt_id}/{command.call_id}"
        call = replace(
            attempt,
            attempt_id=AttemptId(call_id),
            name=f"{command.tool} for {attempt.name or attempt.task_id} (call {command.call_id})",
            timeout_s=timeout_s,
        )
        wire = messages.Command(
            tool_name=command.tool, tool_type="action", parameters=command.arguments, call_id=call_id
        )
        losses = 0
        while True:
            record = await self._there()
            repeatable = _only_reads(record, command)
            self._has_acted = self._has_acted or not repeatable
            if command.withheld:
                return await self._withheld(call, command, repeatable=repeatable)
            try:
                answer = await self._carrier.ask(
                    record, call, wire, repeatable=repeatable, sent=sent and once, once=once, no=_TOLD
                )
            except DeviceOffline:
                continue  # nothing was sent by this call
            except DeviceLost as error:
                losses += 1
                if not once and losses > self._losses:
                    return CommandResult(command.call_id, CommandStatus.FAILURE, error=error.message)
                sent = True
                continue
            except DeviceError as error:
                return CommandResult(command.call_id, CommandStatus.FAILURE, error=error.message)
            if isinstance(answer, Failed) and answer.interrupted and answer.transient:
                once = False  # it was cut off and only reads: from now on it is simply made again
                continue
            return self._result(command, answer)

    async def _there(self) -> DeviceRecord:
        """Return the device once it is there; end the attempt when it stays away."""
        found = await self._carrier.there(self._attempt, repeatable=False, sent=self._has_acted)
        if isinstance(found, DeviceRecord):
            return found
        raise self._over(found, f"The device {self._attempt.device_id!r} is away.")

    async def _withheld(self, call: Attempt, command: Command, *, repeatable: bool) -> CommandResult:
        """Settle a call that cannot be made any more; only one that may have been sent is in doubt."""
        if not command.sent or repeatable:
            return CommandResult(command.call_id, CommandStatus.FAILURE, error=_WITHHELD)
        what = f"The hub was stopped while the device {call.device_id!r} may have worked, and no longer knows the call."
        answer = await self._carrier.doubt(call, what, repeatable=False, no=_TOLD)
        return self._result(command, answer)

    def _result(self, command: Command, answer: messages.Result | Outcome) -> CommandResult:
        match answer:
            case messages.Result():
                return CommandResult(command.call_id, _status(answer), answer.result, answer.error)
            case Completed(result=result):
                return CommandResult(command.call_id, CommandStatus.SUCCESS, result or _TOOK_EFFECT)
            case Failed(again=True):
                return CommandResult(command.call_id, CommandStatus.FAILURE, error=_NO_EFFECT)
            case Failed(error=error):
                raise self._over(answer, error)

    def _over(self, outcome: Outcome, why: str) -> DeviceError:
        self.ended = outcome
        return DeviceError(why, device_id=self._attempt.device_id)


def _only_reads(record: DeviceRecord, command: Command) -> bool:
    profile = tool_profile(record, command.tool)
    return profile is not None and profile.risk is Risk.READ


def _status(result: messages.Result) -> CommandStatus:
    match result.status:
        case messages.ResultStatus.SUCCESS:
            return CommandStatus.SUCCESS
        case messages.ResultStatus.SKIPPED:
            return CommandStatus.SKIPPED
        case _:
            return CommandStatus.FAILURE
