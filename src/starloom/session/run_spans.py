"""A hub's runs as OpenTelemetry spans: run > task > agent's step > model request, built from what is journalled.

Made by the composition root when the process has a tracer provider, else not at all. The journal passes each event here
when it is written; `spending` asks for the place of each model call, so that the request's own span (`llm.tracing`)
stands below the step's. Nothing that was said is in these spans: names, numbers and how things ended.

    RunStarted ─ run ─┬─ TaskStarted ─ task ─┬─ call ─ step … AgentResponse, AgentAction ─ next call or the task's end
                      └─ call of the planner └─ TaskCompleted · TaskFailed · TaskCancelled · TaskRetrying
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.journal.store import Journal, RunRecord

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider


@dataclass(slots=True)
class _Task:
    span: "Span"
    step: "Span | None" = None
    is_answered: bool = False

    def end_step(self) -> None:
        if self.step is not None:
            self.step.end()
        self.step, self.is_answered = None, False


@dataclass(slots=True)
class _Run:
    span: "Span"
    tasks: dict[str, _Task] = field(default_factory=dict)


class RunSpans:
    """The open spans of all runs."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._tracer = provider.get_tracer("starloom.session")
        self._runs: dict[RunId, _Run] = {}

    @contextmanager
    def call(self, run_id: RunId, task_id: str) -> Iterator[None]:
        """Have a model call stand below its task's step (a new one once the last was answered), or below its run."""
        from opentelemetry import context
        from opentelemetry.trace import set_span_in_context

        token = context.attach(set_span_in_context(self._place(run_id, task_id)))
        try:
            yield
        finally:
            context.detach(token)

    def _place(self, run_id: RunId, task_id: str) -> "Span":
        task = self._task(run_id, task_id)
        if task is None:
            return self._run(run_id).span
        if task.is_answered:
            task.end_step()
        if task.step is None:
            task.step = self._child("invoke_agent", task.span, {"gen_ai.operation.name": "invoke_agent"})
        return task.step

    def heard(self, run_id: RunId, event: e.Event) -> None:
        """Open, note or end what the event is about."""
        match event:
            case e.RunStarted() | e.RunResumed():
                self._run(run_id)
            case e.RunEnded(stop_reason=reason):
                self._ended(run_id, reason)
            case e.TaskStarted(task_id=task_id, attempt=attempt, device_id=device_id):
                self._end_task(run_id, task_id, "interrupted")
                run = self._run(run_id)
                about = {"starloom.task.id": task_id, "starloom.attempt": str(attempt), "starloom.device.id": device_id}
                run.tasks[task_id] = _Task(self._child(f"task {task_id}", run.span, about))
            case e.TaskCompleted(task_id=task_id):
                self._end_task(run_id, task_id)
            case e.TaskFailed(task_id=task_id):
                self._end_task(run_id, task_id, "failed")
            case e.TaskCancelled(task_id=task_id):
                self._end_task(run_id, task_id, "cancelled")
            case e.TaskRetrying(task_id=task_id):
                self._end_task(run_id, task_id, "retrying")
            case e.AgentResponse() | e.AgentAction():
                self._step(run_id, event)
            case _:
                pass

    def _step(self, run_id: RunId, event: e.AgentResponse | e.AgentAction) -> None:
        task = self._task(run_id, event.task_id)
        if task is None:
            return
        if isinstance(event, e.AgentAction):
            about = {"gen_ai.tool.name": event.tool, "starloom.status": event.status}
            (task.step or task.span).add_event("execute_tool", about)
        elif task.step is not None:
            task.step.update_name(f"invoke_agent {event.agent}")
            task.step.set_attributes({"gen_ai.agent.name": event.agent, "starloom.step": event.step})
            task.is_answered = True

    def _run(self, run_id: RunId) -> _Run:
        if run_id not in self._runs:
            about = {"gen_ai.operation.name": "invoke_workflow", "starloom.run.id": str(run_id)}
            self._runs[run_id] = _Run(self._child("run", None, about))
        return self._runs[run_id]

    def _task(self, run_id: RunId, task_id: str) -> _Task | None:
        """Return a task's open span; what is written behind a run's end (effects taken back) opens none."""
        run = self._runs.get(run_id)
        return run.tasks.get(task_id) if run is not None else None

    def _child(self, name: str, parent: "Span | None", about: dict[str, str]) -> "Span":
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        place = set_span_in_context(parent) if parent is not None else Context()
        return self._tracer.start_span(name, place, attributes=about)

    def _end_task(self, run_id: RunId, task_id: str, error: str = "") -> None:
        task = self._task(run_id, task_id)
        if task is not None:
            del self._runs[run_id].tasks[task_id]
            task.end_step()
            _end(task.span, error)

    def close(self) -> None:
        """End what is open: the hub stops, and its runs go on in another one's spans."""
        for run_id in list(self._runs):
            self._ended(run_id, "interrupted")

    def _ended(self, run_id: RunId, reason: str) -> None:
        for task_id in list(self._run(run_id).tasks):
            self._end_task(run_id, task_id, "interrupted")
        run = self._runs.pop(run_id)
        run.span.set_attribute("starloom.stop_reason", reason)
        _end(run.span, "" if reason == "finished" else reason)


def _end(span: "Span", error: str) -> None:
    from opentelemetry.trace import StatusCode

    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end()


def traced(journal: Journal, provider: "TracerProvider | None") -> tuple[Journal, RunSpans | None]:
    """Return the journal as the spans hear it, and the spans; the journal itself where nothing is traced."""
    if provider is None:
        return journal, None
    spans = RunSpans(provider)
    return TracedJournal(journal, spans), spans


class TracedJournal:
    """A journal whose written events are heard by the spans; all else is the journal's own."""

    def __init__(self, journal: Journal, spans: RunSpans) -> None:
        self._journal = journal
        self._spans = spans

    async def append(
        self, run_id: RunId, events: Sequence[e.Event], *, keys: Sequence[str | None] = (), epoch: int | None = None
    ) -> tuple[Recorded, ...]:
        """Write the events; see `Journal.append`."""
        written = await self._journal.append(run_id, events, keys=keys, epoch=epoch)
        for item in written:
            self._spans.heard(run_id, item.event)
        return written

    async def take(self, run_id: RunId) -> int:
        """See `Journal.take`."""
        return await self._journal.take(run_id)

    async def read(self, run_id: RunId, after: int = 0) -> tuple[Recorded, ...]:
        """See `Journal.read`."""
        return await self._journal.read(run_id, after)

    async def keyed(self, prefix: str, run_id: RunId | None = None) -> tuple[tuple[str, Recorded], ...]:
        """See `Journal.keyed`."""
        return await self._journal.keyed(prefix, run_id)

    def chunks(self, run_id: RunId, after: int = 0, size: int = 1_000) -> AsyncIterator[tuple[Recorded, ...]]:
        """See `Journal.chunks`."""
        return self._journal.chunks(run_id, after, size)

    def follow(self, run_id: RunId, after: int = 0) -> AsyncIterator[Recorded]:
        """See `Journal.follow`."""
        return self._journal.follow(run_id, after)

    async def runs(self, limit: int = 50) -> tuple[RunRecord, ...]:
        """See `Journal.runs`."""
        return await self._journal.runs(limit)

    async def close(self) -> None:
        """End the open spans; see `Journal.close`."""
        self._spans.close()
        await self._journal.close()
