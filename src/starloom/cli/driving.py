"""Follows one run of a hub in this process: shows it, asks the person, stops it on Ctrl-C, lets go of a stuck one.

Called by `run`, `resume` and `demo`. The first Ctrl-C cancels the run and waits for its end in the journal; the second
leaves at once (the journal then holds an open run, which `starloom resume` takes up).
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from starloom.background import Background, background
from starloom.cli import terminal
from starloom.cli.console import JsonView, RunView, exit_code
from starloom.errors import UsageError
from starloom.ids import ApprovalId, RunId
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.session.galaxy import Galaxy
from starloom.session.halting import until_halted

_DEVICE_LOST = 3


class _Desk:
    """Puts one question at a time to the person at this terminal."""

    def __init__(self, galaxy: Galaxy, view: RunView | JsonView) -> None:
        self._galaxy = galaxy
        self._view = view
        self._turn = asyncio.Lock()  # guards the terminal: one prompt at a time

    async def approve(self, asked: e.ApprovalAsked) -> None:
        """Have the person allow or refuse an action; nobody there refuses."""
        view = self._view
        if isinstance(view, JsonView) or not terminal.someone_is_there():
            self._settle(asked.approval_id, approved=False, comment="no one is at the terminal to be asked")
            return
        arguments = ", ".join(f"{name}={value!r}" for name, value in asked.arguments.items())
        prompt = f"? {asked.tool} on {asked.device_id}: {arguments}\n  {asked.reason}\n  Allow this? [y/N] "
        self._settle(asked.approval_id, approved=terminal.is_yes(await self._ask(view, prompt)), comment="")

    async def answer(self, question: e.QuestionAsked) -> None:
        """Have the person answer in words; nobody there answers nothing."""
        said = ""
        if isinstance(self._view, RunView) and terminal.someone_is_there():
            said = await self._ask(self._view, f"? {question.question} ")
        with contextlib.suppress(UsageError):
            self._galaxy.desk.reply(question.question_id, said)

    async def _ask(self, view: RunView, prompt: str) -> str:
        async with self._turn:
            view.hold()
            try:
                return await terminal.ask(prompt)
            finally:
                view.go_on()

    def _settle(self, approval_id: str, *, approved: bool, comment: str) -> None:
        with contextlib.suppress(UsageError):  # the run ended, or someone else answered, while the person was thinking
            self._galaxy.desk.answer(ApprovalId(approval_id), approved=approved, by="user", comment=comment)


@dataclass
class _Progress:
    """What decides whether a run is stuck: tasks that run, and tasks that wait for a device which is not there."""

    running: set[str] = field(default_factory=set)
    waiting: dict[str, str] = field(default_factory=dict)

    def note(self, event: e.Event) -> None:
        match event:
            case e.TaskStarted(task_id=task_id):
                self.running.add(task_id)
                self.waiting.pop(task_id, None)
            case e.TaskWaiting(task_id=task_id, reason=reason):
                self.running.discard(task_id)
                self.waiting[task_id] = reason
            case e.TaskCompleted(task_id=task_id) | e.TaskFailed(task_id=task_id) | e.TaskCancelled(task_id=task_id):
                self.running.discard(task_id)
                self.waiting.pop(task_id, None)
            case e.TaskRetrying(task_id=task_id):
                self.running.discard(task_id)
            case _:
                pass

    @property
    def stuck(self) -> bool:
        return bool(self.waiting) and not self.running


async def drive(
    galaxy: Galaxy, run_id: RunId, view: RunView | JsonView, *, device_grace_s: float, after: int = 0
) -> int:
    """Follow the run to its end and return the exit code; raise StoreError when it stands still before that.

    Args:
        galaxy: the hub in this process.
        run_id: a run that was just submitted or resumed.
        view: where events are shown.
        device_grace_s: how long to wait when nothing can go on without a device that is gone; then the run is
            suspended, resumable.
        after: the sequence number after which events are shown.
    """
    progress, stream = _Progress(), _events(galaxy, run_id, after)
    pending: asyncio.Task[Recorded] | None = None
    desk = _Desk(galaxy, view)
    if isinstance(view, RunView):
        view.watch(lambda: galaxy.thinking.of(run_id))
    async with background() as asking:
        with _cancelling(galaxy, run_id, asking):
            while True:
                pending = pending or asyncio.ensure_future(_next(stream))
                done, _ = await asyncio.wait([pending], timeout=device_grace_s if progress.stuck else None)
                if not done:
                    pending.cancel()
                    return await _let_go(galaxy, run_id, view, progress)
                recorded, pending = pending.result(), None
                view.show(recorded)
                progress.note(recorded.event)
                match recorded.event:
                    case e.RunEnded(stop_reason=reason):
                        return exit_code(reason)
                    case e.ApprovalAsked() as asked if galaxy.desk.is_open(asked.approval_id):
                        asking.create_task(desk.approve(asked))
                    case e.QuestionAsked() as question if galaxy.desk.is_open(question.question_id):
                        asking.create_task(desk.answer(question))
                    case _:
                        pass


def _events(galaxy: Galaxy, run_id: RunId, after: int) -> AsyncIterator[Recorded]:
    return until_halted(galaxy.journal.follow(run_id, after), lambda: galaxy.over(run_id))


async def _next(stream: AsyncIterator[Recorded]) -> Recorded:
    return await anext(stream)


async def _let_go(galaxy: Galaxy, run_id: RunId, view: RunView | JsonView, progress: _Progress) -> int:
    await galaxy.suspend(run_id)
    for reason in sorted(set(progress.waiting.values())):
        view.say(reason, "yellow")
    view.say(
        "The run is suspended, nothing is lost. To go on: `starloom up`, join the device again, and "
        f"starloom resume {run_id}",
        "yellow",
    )
    return _DEVICE_LOST


@contextlib.contextmanager
def _cancelling(galaxy: Galaxy, run_id: RunId, tasks: Background) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # the next Ctrl-C is Python's own
        tasks.create_task(_cancel(galaxy, run_id))

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except NotImplementedError:  # Windows has no such handlers: Ctrl-C leaves at once, the run stays resumable
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _cancel(galaxy: Galaxy, run_id: RunId) -> None:
    with contextlib.suppress(UsageError):  # it ended in this very moment
        await galaxy.cancel(run_id)
