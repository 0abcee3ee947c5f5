"""Carries one tool call to its end through lost links, dead devices and restarts: never lost, never run twice unasked.

Called by the executor for a task with a tool, and by `dispatch` for each call of an agent. A command whose fate is not
known is asked for again under the same id; the device's own record says how it ended. When that cannot be had, nothing
is guessed:

    sent ─▶ answered ─────────────────────────────────────────────▶ Completed, Failed
     │  └─▶ cut off (the device process died, or was told to stop) ─▶ doubt
     └─▶ device gone ─▶ back within the limit: ask it again ─┐
               │            ▲────────────────────────────────┘
               └─▶ away for longer ─▶ doubt, while still waiting for it

    doubt:  may be repeated → Failed(interrupted), and the scheduler repeats it
            else, by the policy: ask a person · Failed(in doubt) · Failed(again)
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starloom.aip.extension import Capability
from starloom.aip.messages import CANCELLED, IN_DOUBT, Command, Result, ResultStatus
from starloom.clock import Clock
from starloom.errors import DeviceError
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline
from starloom.fleet.fleet import Fleet
from starloom.fleet.records import DeviceRecord
from starloom.orchestrator.ports import Attempt, Completed, Failed, Outcome
from starloom.orchestrator.settings import InDoubt
from starloom.session.desk import ApprovalDesk
from starloom.session.profiles import device_there

_DONE = frozenset({"yes", "y", "done", "ja", "j", "是"})
_AGAIN = frozenset({"no", "n", "again", "nein", "否"})

RUN_AGAIN = "it is run again"


@dataclass(frozen=True, slots=True)
class Doubts:
    """What happens to an attempt of which nobody knows whether it took effect; `policy`: of what must not repeat."""

    desk: ApprovalDesk
    policy: InDoubt

    async def settle(self, attempt: Attempt, what: str, *, repeatable: bool, no: str = RUN_AGAIN) -> Outcome:
        """Return what is to follow from `what` happened; `no` says what a person's no leads to."""
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        settled = await self.settle_unless(never, attempt, what, repeatable=repeatable, no=no)
        return settled or Failed(what, in_doubt=True)

    async def settle_unless(
        self, resolved: "asyncio.Future[Any]", attempt: Attempt, what: str, *, repeatable: bool, no: str = RUN_AGAIN
    ) -> Outcome | None:
        """Return what is to follow; None when `resolved` came before a person's answer."""
        if attempt.idempotent or repeatable:
            return Failed(what, transient=True, interrupted=True)
        match self.policy:
            case InDoubt.FAIL:
                return Failed(what, in_doubt=True, interrupted=True)
            case InDoubt.AGAIN:
                return Failed(what, again=True)
            case InDoubt.ASK:
                return await self._ask(resolved, attempt, what, no)

    async def _ask(self, resolved: "asyncio.Future[Any]", attempt: Attempt, what: str, no: str) -> Outcome | None:
        name = attempt.name or attempt.task_id
        text = (
            f"{what} It was attempt {attempt.number} of {name!r} on {attempt.device_id} and must not be done twice. "
            f"Did it take effect? Answer yes (it counts as done), no ({no}) or fail."
        )
        answer: str | None = "?"
        while answer is not None and answer.strip() and _meaning(answer) is None:
            answer = await self.desk.question_unless(resolved, attempt.run_id, text, attempt.task_id)
        if answer is None:
            return None
        return _meaning(answer) or Failed(what, in_doubt=True)


def _meaning(answer: str) -> Outcome | None:
    """Return what a person's answer means; None when it is not clear. `done {"total": 3}` gives the result with it."""
    word, _, rest = answer.strip().partition(" ")
    word = word.lower().rstrip(".,!")
    if word in _DONE:
        result: Any = rest.strip() or None
        with suppress(ValueError):
            result = json.loads(rest)
        return Completed(result)
    if word in _AGAIN:
        return Failed("It was cut off, and someone decided that it is run again.", again=True)
    return Failed("It was cut off, and someone decided that it has failed.", in_doubt=True) if word == "fail" else None


class Carrier:
    """Carries the tool calls of one run.

    Args:
        fleet: the devices.
        clock: for the limit.
        doubts: what happens when nobody knows.
        lost_s: how long a device may be away before its attempt is in doubt.
    """

    def __init__(self, fleet: Fleet, clock: Clock, doubts: Doubts, lost_s: float) -> None:
        self._fleet = fleet
        self._clock = clock
        self._doubts = doubts
        self._lost_s = lost_s
        self._is_letting_go = False

    def let_go(self) -> None:
        """From now on a cancelled call is left running on its device; its result waits there for the next hub."""
        self._is_letting_go = True

    async def carry(self, attempt: Attempt, command: Command, *, repeatable: bool, sent: bool) -> Result | Outcome:
        """Return the device's answer, or what follows when none can be had.

        Args:
            attempt: whose command it is; its id is the command's.
            command: what to do.
            repeatable: doing it twice does no harm.
            sent: it may have been sent before, in an earlier life of the hub.
        """
        while True:
            record = await self.there(attempt, repeatable=repeatable, sent=sent)
            if not isinstance(record, DeviceRecord):
                return record
            try:
                return await self.ask(record, attempt, command, repeatable=repeatable, sent=sent)
            except DeviceOffline:
                continue  # nothing was sent by this call
            except DeviceLost:
                sent = True
                continue
            except CallTimedOut as error:
                return Failed(error.message, transient=repeatable, in_doubt=not repeatable)
            except DeviceError as error:
                return Failed(error.message)

    async def ask(
        self,
        record: DeviceRecord,
        attempt: Attempt,
        command: Command,
        *,
        repeatable: bool,
        sent: bool,
        once: bool = True,
        no: str = RUN_AGAIN,
    ) -> Result | Outcome:
        """Have a device that is there carry a command out, or say how it ended; what follows when it cannot know.

        Args:
            record: the device.
            attempt: as the command is called to people; its id is what the device knows it by.
            command: what to do.
            repeatable: doing it twice does no harm.
            sent: it may have been sent before.
            once: the device keeps it on record; else it is carried out each time.
            no: what a person's no leads to, for their question.

        Raises:
            DeviceError: it could not be sent (`DeviceOffline`), its answer did not come, or it was refused.
        """
        if sent and not _remembers(record):
            return await self._doubts.settle(attempt, _lost(attempt), repeatable=repeatable, no=no)
        result = await self._call(attempt, command, once=once)
        if result.status is ResultStatus.FAILURE and result.error in (IN_DOUBT, CANCELLED):
            what = f"The device {attempt.device_id!r} was cut off while it worked, and cannot say what took effect."
            return await self._doubts.settle(attempt, what, repeatable=repeatable, no=no)
        return result

    async def doubt(self, attempt: Attempt, what: str, *, repeatable: bool, no: str = RUN_AGAIN) -> Outcome:
        """Return what follows from what cannot be asked of the device."""
        return await self._doubts.settle(attempt, what, repeatable=repeatable, no=no)

    async def there(self, attempt: Attempt, *, repeatable: bool, sent: bool) -> DeviceRecord | Outcome:
        """Return the device's record once it is there, or what follows from its absence.

        A task of which nothing was sent goes back to the scheduler; one in doubt waits on while a person is asked.
        """
        back = asyncio.ensure_future(device_there(self._fleet, attempt.device_id))
        limit = asyncio.ensure_future(self._clock.sleep(self._lost_s))
        try:
            await asyncio.wait({back, limit}, return_when=asyncio.FIRST_COMPLETED)
            if back.done():
                return back.result()
            if not sent:
                return Failed(f"The device {attempt.device_id!r} went before anything was sent to it.", again=True)
            what = _lost(attempt)
            outcome = await self._doubts.settle_unless(back, attempt, what, repeatable=repeatable)
            return back.result() if outcome is None else outcome
        finally:
            back.cancel()
            limit.cancel()

    async def _call(self, attempt: Attempt, command: Command, *, once: bool) -> Result:
        session_id, _, _ = str(attempt.attempt_id).partition("/")  # an agent's calls are one session
        call = asyncio.ensure_future(
            self._fleet.call(
                attempt.device_id,
                [command],
                session_id=session_id,
                task_name=attempt.task_id,
                timeout_s=attempt.timeout_s,
                once=once,
            )
        )
        call.add_done_callback(_take_exception)
        try:
            [result] = await asyncio.shield(call)
        except asyncio.CancelledError:
            if not self._is_letting_go and not call.done():
                call.cancel()
                await asyncio.wait({call})
            raise
        return result


def _remembers(record: DeviceRecord) -> bool:
    """Whether the device answers a repeated attempt from its record; one that does not would act again."""
    return Capability.ATTEMPTS.value in record.capabilities


def _lost(attempt: Attempt) -> str:
    return f"The device {attempt.device_id!r} was lost while it worked, and what it did last is not known."


def _take_exception(call: "asyncio.Future[list[Result]]") -> None:
    """Mark the exception of a call that was left behind as seen."""
    if not call.cancelled():
        call.exception()
