"""Carries out commands: one batch after another up to a limit, each answered, whatever happens (D5).

Owned by the device process; outlives connections. A batch stops at its first failure and the rest is skipped. A batch
whose call ids are attempts goes through the record of attempts, so a repeated id is answered and not acted on again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

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


@dataclass(slots=True)
class _Batch:
    command: CommandAsked
    answer: Answer
    task: asyncio.Task[None] | None = None
    started: bool = False
    stopped: bool = False  # cancelled by us; any other cancellation ends the process

    def stop(self) -> None:
        """Cancel the batch; one that has not begun sees it when it does."""
        self.stopped = True
        if self.started and self.task is not None:
            self.task.cancel()


class CommandRunner:
    """Runs commands in tasks of a group.

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
        self._places = asyncio.Semaphore(max_in_flight)
        self._limit = max_in_flight + max_waiting
        self._attempts = attempts
        self._batches: dict[str, _Batch] = {}
        self._attempted: dict[str, asyncio.Future[Result]] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def start(self, command: CommandAsked, answer: Answer) -> None:
        """Begin a COMMAND, at once or when it is its turn; `answer` is called exactly once, with all results."""
        if len(self._batches) >= self._limit:
            answer(command, [_failure(action, TOO_MANY) for action in command.actions])
            return
        key = command.response_id or f"unnamed-{id(command)}"
        batch = self._batches[key] = _Batch(command, answer)
        batch.task = self._group.create_task(self._run(key, batch))

    def cancel(self, response_id: str) -> None:
        """Stop a COMMAND; its answer says so. One that has ended was answered already."""
        batch = self._batches.get(response_id)
        if batch is not None:
            batch.stop()

    def drop(self) -> None:
        """Stop what nobody waits for any more, after a new session began; recorded attempts go on."""
        for batch in list(self._batches.values()):
            if not (batch.command.once and self._attempts is not None):
                batch.stop()

    def stop_all(self) -> None:
        """Stop everything, recorded attempts too: nothing may act any more."""
        for batch in list(self._batches.values()):
            batch.stop()

    def refuse(self, command: CommandAsked, answer: Answer, why: str) -> None:
        """Answer a command that is not begun."""
        answer(command, [_failure(action, why) for action in command.actions])

    async def _run(self, key: str, batch: _Batch) -> None:
        results: list[Result] = []
        batch.started = True
        try:
            if not batch.stopped:
                async with self._places:
                    await self._carry_out(batch, results)
        except asyncio.CancelledError:
            if not batch.stopped or batch.task is None:
                raise
            batch.task.uncancel()
        finally:
            self._batches.pop(key, None)
        batch.answer(batch.command, _complete(batch.command.actions, results))

    async def _carry_out(self, batch: _Batch, results: list[Result]) -> None:
        """Append one Result per action."""
        command, total = batch.command, len(batch.command.actions)
        for action in command.actions:
            if results and results[-1].status is not ResultStatus.SUCCESS:
                results.append(_skipped(action))
                continue
            results.append(await self._one(action, batch))
            if total > 1 and command.response_id is not None:
                self._progress(command.response_id, f"{len(results)}/{total}")

    async def _one(self, action: Command, batch: _Batch) -> Result:
        if not action.tool_name:
            return Result(status=ResultStatus.SUCCESS, error="", result="No action taken.", call_id=action.call_id)
        if action.tool_name == LIST_TOOLS:
            listed = list_tools(self._router.infos(), action.parameters or {})
            return Result(status=ResultStatus.SUCCESS, result=listed, call_id=action.call_id)
        if batch.command.once and self._attempts is not None and action.call_id:
            try:
                return await self._attempt(self._attempts, action, batch)
            except StoreError as error:  # a record that cannot be written must not end the device
                return _failure(action, error.message)
        return await self._call(action, batch.command)

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
        return Result(
            status=status,
            error=outcome.error,
            result=outcome.result,
            namespace=outcome.namespace,
            call_id=action.call_id,
        )

    async def _attempt(self, attempts: AttemptJournal, action: Command, batch: _Batch) -> Result:
        """Carry an attempt out once in this device's life; a repetition gets the first one's result."""
        attempt_id = AttemptId(action.call_id or "")
        begun = await attempts.begin(attempt_id)
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
            if batch.stopped:
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
    rest = actions[len(done) :]
    return [*done, *(_failure(action, CANCELLED) for action in rest[:1]), *(_skipped(action) for action in rest[1:])]
