"""Runs, tasks, steps and model requests are spans, each below the other, without a word of what was said."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from pydantic import BaseModel

from starloom.clock import ManualClock
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.memory import MemoryJournal
from starloom.llm.budgets import BudgetedModel, Ledger
from starloom.llm.completion import ProviderModel
from starloom.llm.openai_compatible import Connection
from starloom.llm.port import Message
from starloom.llm.scripted import ScriptedServer
from starloom.llm.settings import ModelProfile
from starloom.llm.tracing import Tracing
from starloom.session.run_spans import RunSpans, TracedJournal
from starloom.session.spending import Spending

RUN = RunId("r1")
SECRET = "correct horse battery"


class Word(BaseModel):
    """A word."""

    word: str


class Kept(trace.NonRecordingSpan):
    """A span that keeps what it is told, and which span it stands below."""

    def __init__(self, name: str, parent: trace.Span, attributes: Any) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name = name
        self.parent = parent if isinstance(parent, Kept) else None
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.events: list[str] = []
        self.has_failed = False
        self.has_ended = False

    def is_recording(self) -> bool:
        return not self.has_ended

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes |= attributes

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        self.events.append(f"{name} {attributes['gen_ai.tool.name']}")

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.has_failed = True

    def end(self, end_time: int | None = None) -> None:
        assert not self.has_ended
        self.has_ended = True

    @property
    def path(self) -> str:
        return f"{self.parent.path} > {self.name}" if self.parent else self.name


class Spans(trace.TracerProvider, trace.Tracer):
    """A provider and its one tracer."""

    def __init__(self) -> None:
        self.made: list[Kept] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, context: Any = None, *_: Any, attributes: Any = None, **__: Any) -> trace.Span:
        self.made.append(Kept(name, trace.get_current_span(context), attributes))
        return self.made[-1]

    @contextmanager
    def start_as_current_span(self, name: str, *_: Any, **__: Any) -> Iterator[trace.Span]:
        span = self.start_span(name)
        with trace.use_span(span, end_on_exit=True):
            yield span


async def test_a_request_stands_below_its_step_its_task_and_its_run() -> None:
    provider = Spans()
    spans = RunSpans(provider)
    journal = TracedJournal(MemoryJournal(ManualClock()), spans)
    spending = Spending(Ledger(), journal, ManualClock(), spans=spans)
    with ScriptedServer([{"word": "hi"}]) as server:
        profile = ModelProfile(provider="endpoint", model="m", base_url=server.base_url)
        model = ProviderModel(Connection(profile, None, Tracing(provider=provider)))
        planner = BudgetedModel(model, spending.of_planning(RUN))
        agent = BudgetedModel(model, spending.of_task(RUN, "a"))
        await journal.append(RUN, [e.RunStarted(SECRET)])
        await planner.complete([Message("user", SECRET)], Word)
        await journal.append(RUN, [e.TaskStarted("a", 1, "r1:a:1", "hub")])
        for step in (1, 2):
            await agent.complete([Message("user", SECRET)], Word)
            await journal.append(RUN, [e.AgentResponse("HostAgent", step, {"thought": SECRET}, "a")])
            await journal.append(RUN, [e.AgentAction("HostAgent", "files.read", {}, "allow", "success", "a")])
        await journal.append(RUN, [e.TaskFailed("a", 1, SECRET), e.TaskStarted("b", 1, "r1:b:1", "hub")])
        await journal.append(RUN, [e.RunEnded("failed", error=SECRET)])
        await model.close()
    assert [span.path for span in provider.made] == [
        "run",
        "run > chat m",
        "run > task a",
        "run > task a > invoke_agent HostAgent",
        "run > task a > invoke_agent HostAgent > chat m",
        "run > task a > invoke_agent HostAgent",
        "run > task a > invoke_agent HostAgent > chat m",
        "run > task b",
    ]
    assert [span.attributes.get("starloom.step") for span in provider.made if "agent" in span.name] == [1, 2]
    assert [span.events for span in provider.made if "agent" in span.name] == [["execute_tool files.read"]] * 2
    assert all(span.has_ended for span in provider.made)
    assert [span.name for span in provider.made if span.has_failed] == ["run", "task a", "task b"]
    assert SECRET not in json.dumps([[span.attributes, span.events] for span in provider.made])


async def test_a_run_that_an_earlier_hub_began_has_a_span_of_its_own_here() -> None:
    provider = Spans()
    spans = RunSpans(provider)
    spans.heard(RUN, e.RunResumed("recovery"))
    spans.heard(RUN, e.TaskCompleted("a", 1, None))
    spans.heard(RUN, e.RunEnded("finished"))
    assert [(span.path, span.has_failed, span.has_ended) for span in provider.made] == [("run", False, True)]
    assert provider.made[0].attributes["starloom.stop_reason"] == "finished"


async def test_a_hub_that_closes_ends_the_spans_of_runs_under_way() -> None:
    provider = Spans()
    spans = RunSpans(provider)
    journal = TracedJournal(MemoryJournal(ManualClock()), spans)
    spans.heard(RUN, e.TaskStarted("t1", 1, "r1:t1:1", "hub"))
    with spans.call(RUN, "t1"):
        pass
    await journal.close()
    assert [span.name for span in provider.made] == ["run", "task t1", "invoke_agent"]
    assert all(span.has_ended for span in provider.made)


def test_what_is_written_behind_a_runs_end_opens_no_span() -> None:
    provider = Spans()
    spans = RunSpans(provider)
    spans.heard(RUN, e.RunStarted("x"))
    spans.heard(RUN, e.RunEnded("finished"))
    taken_back = e.AgentAction("undo", "files.write", {}, "allow", "success", task_id="t1")
    for event in (taken_back, e.TaskCancelled("t1", "user")):
        spans.heard(RUN, event)
    assert [span.has_ended for span in provider.made] == [True]
