"""What people's programs change in a run: edits, undo, redo, cancel and answers, each safe to send again.

Called by the hub's routes. A reply is given when its event is committed. A program that did not get it sends the same
again, under the same key: it gets the same reply, and nothing happens twice, whether the hub or the run has ended
meanwhile or not.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from starloom.constellation.problems import EditError
from starloom.errors import UsageError
from starloom.ids import ApprovalId, RunId
from starloom.journal.events import ApprovalAnswered, EditApplied, Event, QuestionAnswered, RunCancelled
from starloom.orchestrator.requests import KeyReused, Request, earlier_answer
from starloom.orchestrator.runner import Runner
from starloom.session.galaxy import Galaxy

_LOOKED_AT = 10_000  # runs, the newest: a key is good for as long


class Starts:
    """Starts runs; a request with a key begins one run, however often it is sent.

    The run's id is made from the key and from what was asked, so the journal's list of runs is all that must be known.
    """

    def __init__(self, galaxy: Galaxy) -> None:
        self._galaxy = galaxy
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self, request: Request | None, begin: Callable[[RunId | None], Awaitable[RunId]]) -> RunId:
        """Begin a run by `begin`, or return the one that this request began; it is taken up if it has to be.

        Raises:
            KeyReused: the request's key began another run; nothing was begun.
            UsageError: what `begin` says.
        """
        if request is None:
            return await begin(None)
        of_key = f"run_{hashlib.sha256(request.key.encode()).hexdigest()[:20]}"
        run_id = RunId(f"{of_key}{request.digest[:12]}")
        async with self._locks.setdefault(of_key, asyncio.Lock()):
            earlier = [record.run_id for record in await self._galaxy.journal.runs(_LOOKED_AT)]
            if run_id not in earlier:
                if any(name.startswith(of_key) for name in earlier):
                    raise KeyReused(f"The key {request.key!r} began another run; take a new one.", key=request.key)
                return await begin(run_id)
        with suppress(UsageError):  # it has ended
            await self._galaxy.resume(run_id)
        return run_id


async def edit(
    galaxy: Galaxy,
    run_id: RunId,
    commands: list[Any],
    *,
    why: str = "",
    against: int | None = None,
    request: Request | None = None,
) -> int:
    """Edit the graph of a run and return its new version.

    Raises:
        UsageError: the run is not running in this hub.
        EditError: refused; nothing changed.
        KeyReused: the request's key was used for another one; nothing changed.
    """

    async def make(runner: Runner) -> EditApplied | None:
        return await runner.edit(commands, why=why, against=against, request=request)

    return await _changed(galaxy, run_id, make, request)


async def undo(galaxy: Galaxy, run_id: RunId, request: Request | None = None) -> int:
    """Undo the newest edit of a run and return its new version; raises as `edit`, also when there is none."""
    return await _changed(galaxy, run_id, lambda runner: runner.undo(request=request), request)


async def redo(galaxy: Galaxy, run_id: RunId, request: Request | None = None) -> int:
    """Make the newest undone edit again and return the new version; raises as `edit`, also when there is none."""
    return await _changed(galaxy, run_id, lambda runner: runner.redo(request=request), request)


async def cancel(galaxy: Galaxy, run_id: RunId) -> None:
    """Cancel a run; nothing happens to one that was cancelled before.

    Raises:
        UsageError: there is no such run, or it has ended otherwise.
    """
    try:
        await galaxy.cancel(run_id)
    except UsageError:
        events = await galaxy.journal.read(run_id)
        if not any(isinstance(item.event, RunCancelled) for item in events):
            raise


async def approve(
    galaxy: Galaxy, approval_id: ApprovalId, *, approved: bool, comment: str = "", is_keyed: bool = False
) -> None:
    """Answer an approval; the same answer again is the same as once.

    Raises:
        UsageError: nothing of that id waits, or someone else was faster.
        KeyReused: it was answered otherwise, and the request has a key (`is_keyed`).
    """
    event = ApprovalAnswered(approval_id, approved=approved, by="user", comment=comment)
    if await _is_first(galaxy, approval_id, event, is_keyed=is_keyed):
        with suppress(UsageError):  # nobody waits for it any more; it is on record
            galaxy.desk.answer(approval_id, approved=approved, by="user", comment=comment)


async def reply(galaxy: Galaxy, question_id: str, answer: str, *, is_keyed: bool = False) -> None:
    """Answer a question; the same answer again is the same as once. Raises as `approve`."""
    event = QuestionAnswered(question_id, answer, by="user")
    if await _is_first(galaxy, question_id, event, is_keyed=is_keyed):
        with suppress(UsageError):  # nobody waits for it any more; it is on record
            galaxy.desk.reply(question_id, answer)


async def _is_first(galaxy: Galaxy, asked: str, event: Event, *, is_keyed: bool) -> bool:
    """Commit an answer and return True, or return False when this very answer was committed before."""
    run_id = galaxy.desk.run_of(asked)
    key = f"answer:{asked}"
    if run_id is not None and await galaxy.journal.append(run_id, [event], keys=[key]):
        return True
    earlier = [recorded.event for found, recorded in await galaxy.journal.keyed(key, run_id) if found == key]
    if event in earlier and is_keyed:
        return False
    if earlier and is_keyed:
        raise KeyReused(f"{asked!r} was answered already, and otherwise.", id=asked)
    raise UsageError(f"Nothing with the id {asked!r} is waiting for an answer.", id=asked)


async def _changed(
    galaxy: Galaxy,
    run_id: RunId,
    make: Callable[[Runner], Awaitable[EditApplied | None]],
    request: Request | None,
) -> int:
    try:
        applied = await make(galaxy.runner(run_id))
    except KeyReused:
        raise
    except UsageError:
        if request is None:
            raise
        earlier = earlier_answer(request, await galaxy.journal.keyed(request.prefix, run_id))
        if not isinstance(earlier, EditApplied):
            raise
        return earlier.version
    if applied is None:
        raise EditError("There is nothing to undo or to redo.")
    return applied.version
