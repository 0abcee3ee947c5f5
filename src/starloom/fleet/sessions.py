"""The tasks that run because someone on the wire asked for them: whose they are, where they run, how they end.

Part of the fleet. A session belongs to the client that began it and is known by (owner, session id), so nobody can take
an id away from its rightful owner by being first (D16), and it is gone when it ends, so nothing can be replayed.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from starloom.aip.messages import ClientMessage, ClientType, Json, TaskStatus
from starloom.fleet.pushed import PushedTasks
from starloom.fleet.tasks import (
    DEVICE_GONE,
    STOPPED_BY_REQUESTER,
    IncomingTask,
    TaskHandler,
    TaskOutcome,
    rounds,
    safe_task_name,
)
from starloom.fleet.visit import Visit

logger = logging.getLogger(__name__)

SESSION_ID_LIMIT = 512


@dataclass(slots=True)
class Session:
    """One task that runs."""

    task: IncomingTask
    owner: Visit
    work: asyncio.Future[TaskOutcome] | None = None
    performing: asyncio.Future[None] | None = None  # when it may outlive its owner's connection
    why: TaskOutcome | None = field(default=None)

    def stop(self, reason: str) -> None:
        """Cancel the handler; the session ends as failed with this reason and upstream's empty result."""
        if self.why is None:
            self.why = TaskOutcome(TaskStatus.FAILED, [], reason)
        if self.work is not None:
            self.work.cancel()


class Sessions:
    """All tasks that run for clients.

    Args:
        handler: who performs tasks; None: every task is refused.
        visit_of: finds the live connection of a client.
        pushed: the ids promised to devices.
        limit: the most sessions of one client.
    """

    def __init__(
        self,
        handler: TaskHandler | None,
        *,
        visit_of: Callable[[str], Visit | None],
        pushed: PushedTasks,
        limit: int,
    ) -> None:
        self._handler = handler
        self._visit_of = visit_of
        self._pushed = pushed
        self._limit = limit
        self._running: dict[tuple[str, str], Session] = {}

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, visit: Visit, message: ClientMessage) -> None:
        """Start the task, or answer with an ERROR that says why not."""
        fault = self._fault(visit, message)
        if fault is not None:
            visit.protocol.error(fault, code="task_refused", about=message)
            return
        promised = self._pushed.take(visit.client_id, message.task_name)
        session_id = message.session_id or promised or visit.protocol.stamps.new_id()
        task = IncomingTask(
            session_id=session_id,
            task_name=safe_task_name(message.task_name, session_id),
            request=message.request or "",
            device_id=message.target_id or visit.client_id,
            requester_id=visit.client_id,
            requester_type=visit.client_type,
        )
        session = Session(task, visit)
        self._running[visit.client_id, session_id] = session
        visit.protocol.acknowledge_task(session_id)
        if visit.may_return:
            session.performing = asyncio.ensure_future(self._perform(session))  # `leave` ends it
        elif visit.group is not None:
            visit.group.create_task(self._perform(session))

    def cancel(self, visit: Visit, session_id: str) -> None:
        """Stop a session of this client; an id that is not its own changes nothing."""
        session = self._running.get((visit.client_id, session_id))
        if session is not None:
            session.stop(STOPPED_BY_REQUESTER)

    def adopt(self, old: Visit, new: Visit) -> None:
        """Go on for a requester that came back: the ends of its tasks go to its new connection."""
        for session in self._running.values():
            if session.owner is old:
                session.owner = new

    def leave(self, visit: Visit) -> list[asyncio.Future[None]]:
        """Stop what is still done for a connection that will not come back; return what to wait for."""
        left = [session for session in self._running.values() if session.owner is visit]
        for session in left:
            session.stop(STOPPED_BY_REQUESTER)
        return [session.performing for session in left if session.performing is not None]

    def device_gone(self, device_id: str) -> None:
        """Stop every session that runs on this device."""
        for session in list(self._running.values()):
            if session.task.device_id == device_id:
                session.stop(DEVICE_GONE)

    def _fault(self, visit: Visit, message: ClientMessage) -> str | None:
        if self._handler is None:
            return "This server takes no tasks"
        if len(message.session_id or "") > SESSION_ID_LIMIT:
            return f"session_id must be at most {SESSION_ID_LIMIT} characters"
        if (visit.client_id, message.session_id) in self._running:
            return f"session_id '{message.session_id}' is running already"
        if sum(owner == visit.client_id for owner, _ in self._running) >= self._limit:
            return f"This client has {self._limit} tasks running, the most allowed"
        if visit.client_type is ClientType.DEVICE:
            foreign = message.target_id not in (None, visit.client_id)
            return "Device clients may not target other devices" if foreign else None
        return self._target_fault(visit, message.target_id)

    def _target_fault(self, visit: Visit, target_id: str | None) -> str | None:
        if target_id is None:
            return "Constellation task requests require target_id"
        target = self._visit_of(target_id)
        if target is None:
            return f"Target device '{target_id}' is not connected"
        if target.client_type is not ClientType.DEVICE:
            return "Constellation tasks may only target device clients"
        if visit.scope not in (None, target_id):
            return "Not authorized to send tasks to this device"
        return None

    async def _perform(self, session: Session) -> None:
        """Run the handler to its end and tell requester and device; the session is forgotten first."""
        task = session.task
        outcome = TaskOutcome(TaskStatus.FAILED, [], "Session ended in unknown state")
        try:
            outcome = await self._outcome(session)
        finally:
            del self._running[task.requester_id, task.session_id]
        self._tell_end(session, outcome)

    async def _outcome(self, session: Session) -> TaskOutcome:
        if self._handler is None:
            return TaskOutcome(TaskStatus.FAILED, [], "This server takes no tasks")
        work = asyncio.ensure_future(self._handler.perform(session.task))
        session.work = work
        try:
            await asyncio.wait({work})
        finally:
            if not work.done():  # the requester is gone: end the work before the visit ends
                work.cancel()
                await asyncio.wait({work})
        if session.why is not None:
            return session.why
        if work.cancelled():
            return TaskOutcome(TaskStatus.FAILED, [], "Task was cancelled")
        error = work.exception()
        if error is not None:  # the border of a task: it must not end the connection
            logger.error("The task %r broke.", session.task.session_id, exc_info=error)
            return TaskOutcome(TaskStatus.FAILED, [], "The task ended with an internal error")
        return work.result()

    def _tell_end(self, session: Session, outcome: TaskOutcome) -> None:
        task = session.task
        response_id = session.owner.protocol.stamps.new_id()
        result: Json = rounds(task.request, outcome.result)
        session.owner.protocol.end_task(
            task.session_id, outcome.status, result=result, error=outcome.error, response_id=response_id
        )
        session.owner.flush()
        device = self._visit_of(task.device_id)
        if device is not None and device is not session.owner:
            device.protocol.end_task(
                task.session_id, outcome.status, result=result, error=outcome.error, response_id=response_id
            )
            device.flush()
        self._pushed.ended(task, outcome)
