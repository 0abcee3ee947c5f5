"""Carries out commands: one batch after another up to a limit, each answered, whatever happens (D5).

Owned by the device process; outlives connections. A batch stops at its first failure and the rest is skipped. A batch
whose call ids are attempts goes through the record of attempts, so a repeated id is answered and not acted on again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import assert_never

from msgspec import Struct

from starloom.aip.device import CommandAsked
from starloom.aip.messages import CANCELLED, IN_DOUBT, Command, Result, ResultStatus, plain, read
from starloom.device.attempts import Attached, AttemptJournal, Finished, Fresh, Interrupted
from starloom.device.listing import LIST_TOOLS, list_tools
from starloom.errors import StoreError
from starloom.ids import AttemptId
from starloom.tools.router import ToolCall, ToolRouter, ToolStatus

logger = logging.getLogger(__name__)

SKIPPED = "Skipped due to previous failure (early_exit=True)."  # the wire's own text
TOO_MANY = "This device has too many commands waiting; nothing was done."

Answer = Callable[[CommandAsked, list[Result]], None]
Progress = Callable[[str, str], None]


class _Batch(Struct, eq=False):
    command: CommandAsked
    answer: Answer
    task: asyncio.Task[None] | None = None  # None while it waits for its turn
    begun: bool = False
    stops: int = 0  # cancelled by us that often; any other cancellation ends the process


class CommandRunner:
    """Runs commands in tasks of a group, one task for each batch that is carried out.

    Args:
        router: finds and calls tools.
        group: owns the tasks.
        progress: takes reports on a running batch: its `response_id` and a text.
        max_in_flight: how many batches run at once; the rest waits in order.
        max_waiting: how many may wait.
        attempts: the record of attempts; None: every command is carried out as it comes.
    """

    def __init__(
        self,
        router: ToolRouter,
        group: asyncio.TaskGroup,
        *,
        progress: Progress,
        max_in_flight: int,
        max_waiting: int,
        attempts: AttemptJournal | None = None,
    ) -> None:
        self._router = router
        self._group = group
        self._progress = progress
        self._places = max_in_flight
        self._limit = max_in_flight + max_waiting
        self._attempts = attempts
        self._running: list[_Batch] = []
        self._waiting: deque[_Batch] = deque()
        self._attempted: dict[str, asyncio.Future[Result]] = {}

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    def start(self, command: CommandAsked, answer: Answer) -> None:
        """Begin a COMMAND, at once or when it is its turn; `answer` is called exactly once, with all results."""
        if len(self) >= self._limit:
            self.refuse(command, answer, TOO_MANY)
            return
        self._waiting.append(_Batch(command, answer))
        self._fill_places()

    def cancel(self, response_id: str) -> None:
        """Stop a COMMAND; its answer says so. One that has ended was answered already."""
        for batch in (*self._running, *self._waiting):
            if batch.command.response_id == response_id:
                self._stop(batch)

    def drop(self) -> None:
        """Stop what nobody waits for any more, after a new session began; recorded attempts go on."""
        for batch in (*self._running, *self._waiting):
            if not (batch.command.once and self._attempts is not None):
                self._stop(batch)

    def stop_all(self) -> None:
        """Stop everything, recorded attempts too: nothing may act any more."""
        for batch in (*self._running, *self._waiting):
            self._stop(batch)

    def refuse(self, command: CommandAsked, answer: Answer, why: str) -> None:
        """Answer a command that is not begun."""
        answer(command, [_failure(action, why) for action in command.actions])

    def _stop(self, batch: _Batch) -> None:
        """Cancel a batch; one that waits is answered now, one that is about to begin sees it when it does."""
        batch.stops += 1
        if batch in self._waiting:
            self._waiting.remove(batch)
            batch.answer(batch.command, _complete(batch.command.actions, []))
        elif batch.begun and batch.task is not None:
            batch.task.cancel()

    def _fill_places(self) -> None:
        while self._waiting and len(self._running) < self._places:
            batch = self._waiting.popleft()
            self._running.append(batch)
            batch.task = self._group.create_task(self._run(batch))

    async def _run(self, batch: _Batch) -> None:
        results: list[Result] = []
        batch.begun = True
        try:
            if not batch.stops:
                await self._carry_out(batch, results)
        except asyncio.CancelledError:
            if not batch.stops:
                raise
        finally:
            self._leave(batch)
        batch.answer(batch.command, _complete(batch.command.actions, results))

    def _leave(self, batch: _Batch) -> None:
        """Give its place to the next one, unless the process is ending: then the group takes no new tasks."""
        self._running.remove(batch)
        if batch.task is not None and batch.task.cancelling() <= batch.stops:
            self._fill_places()

    async def _carry_out(self, batch: _Batch, results: list[Result]) -> None:
        """Append one Result per action."""
        command, total = batch.command, len(batch.command.actions)
        attempts = self._attempts if command.once else None
        for action in command.actions:
            if results and results[-1].status is not ResultStatus.SUCCESS:
                results.append(_skipped(action))
                continue
            if not action.tool_name:
                result = Result(ResultStatus.SUCCESS, "", "No action taken.", call_id=action.call_id)
            elif action.tool_name == LIST_TOOLS:
                listed = list_tools(self._router.infos(), action.parameters or {})
                result = Result(ResultStatus.SUCCESS, result=listed, call_id=action.call_id)
            elif attempts is not None and action.call_id:
                result = await self._attempt(attempts, action, batch)
            else:
                result = await self._call(action, command)
            results.append(result)
            if total > 1 and command.response_id is not None:
                self._progress(command.response_id, f"{len(results)}/{total}")

    async def _call(self, action: Command, command: CommandAsked) -> Result:
        outcome = await self._router.call(
            ToolCall(
                action.tool_name,
                action.parameters or {},
                action.call_id or "",
                command.timeout_s,
                action.tool_type,
            )
        )
        status = ResultStatus.SUCCESS if outcome.status is ToolStatus.SUCCESS else ResultStatus.FAILURE
        return Result(status, outcome.error, outcome.result, outcome.namespace, action.call_id)

    async def _attempt(self, attempts: AttemptJournal, action: Command, batch: _Batch) -> Result:
        """Carry an attempt out once in this device's life; a repetition gets the first one's result."""
        attempt_id = AttemptId(action.call_id or "")
        try:
            begun = await attempts.begin(attempt_id)
        except StoreError as error:  # a record that cannot be written must not end the device
            return _failure(action, error.message)
        match begun:
            case Fresh():
                return await self._first(attempts, attempt_id, action, batch)
            case Attached():
                running = self._attempted.get(attempt_id)
                return await asyncio.shield(running) if running is not None else _failure(action, IN_DOUBT)
            case Finished(result):
                return read(Result, result)
            case Interrupted():
                return _failure(action, IN_DOUBT)
            case _:
                assert_never(begun)

    async def _first(self, attempts: AttemptJournal, attempt_id: AttemptId, action: Command, batch: _Batch) -> Result:
        """Act, and record the result before it is told; one cut off by the process's end stays unfinished."""
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._attempted[attempt_id] = outcome
        result = _failure(action, IN_DOUBT)
        try:
            result = await self._call(action, batch.command)
            await _record(attempts, attempt_id, result)
        except asyncio.CancelledError:
            if batch.stops:
                result = _failure(action, CANCELLED)
                await _record(attempts, attempt_id, result)
            raise
        finally:
            outcome.set_result(result)
            del self._attempted[attempt_id]
        return result


async def _record(attempts: AttemptJournal, attempt_id: AttemptId, result: Result) -> None:
    """Put a result on disk; when that fails it is told all the same, and only a repetition will be in doubt."""
    try:
        await attempts.finish(attempt_id, plain(result))
    except StoreError as error:
        logger.warning("%s", error.message)


def _failure(action: Command, error: str) -> Result:
    return Result(status=ResultStatus.FAILURE, error=error, call_id=action.call_id)


def _skipped(action: Command) -> Result:
    return Result(status=ResultStatus.SKIPPED, error=SKIPPED, call_id=action.call_id)


def _complete(actions: Sequence[Command], done: list[Result]) -> list[Result]:
    """Return one Result per action; after a cancellation the one that was stopped has failed, the rest is skipped."""
    if len(done) == len(actions):
        return done
    rest = actions[len(done) :]
    return [*done, *(_failure(action, CANCELLED) for action in rest[:1]), *(_skipped(action) for action in rest[1:])]
