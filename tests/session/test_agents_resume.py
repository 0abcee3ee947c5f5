"""An agent that is cut off at any moment goes on where it was: the same memory, the same prompts, each effect once.

Everything is real but the model's words: hub, device, SQLite journal, policy, tools, the model's connection. At every
moment with `STARLOOM_CHAOS=long`, else at some.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from starloom.background import background
from starloom.clock import SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.device.identity import identity_of_this_machine
from starloom.device.process import run_device
from starloom.fleet.fleet import Fleet
from starloom.fleet.local import local_connector
from starloom.ids import RandomIds, RunId
from starloom.journal.events import (
    AgentAction,
    AgentResponse,
    ApprovalAsked,
    QuestionAsked,
    RunEnded,
)
from starloom.journal.sqlite import SqliteJournal
from starloom.llm.budgets import Budgets, Ledger
from starloom.llm.opening import open_model
from starloom.llm.scripted import ScriptedServer
from starloom.llm.settings import parse_model
from starloom.orchestrator.settings import InDoubt, RunSettings
from starloom.safety.gate import Gate
from starloom.safety.redaction import Redactor
from starloom.session.build import device_ready
from starloom.session.desk import ApprovalDesk
from starloom.session.executor import Crew
from starloom.session.galaxy import Galaxy
from starloom.session.round import Limits
from starloom.session.spending import Spending
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.router import ToolRouter
from starloom.tools.workspace import Workspace

GOAL = "Ask for a colour, write it to a.txt and b.txt, and note each step in ledger.txt"
ANSWERS = {"Which colour?": "blue", "And how often?": "twice"}


def said(status: str, *actions: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    calls = [{"tool": tool, "arguments": arguments} for tool, arguments in actions]
    return {"thought": f"so {status}", "status": status, "action": calls or None, **more}


def noting(word: str) -> tuple[str, dict[str, Any]]:
    return "shell.run", {"command": ["sh", "-c", f"echo {word} >> ledger.txt; echo noted {word}"]}


SCRIPT = [
    said("PENDING", questions=list(ANSWERS)),
    said("CONTINUE", ("files.write", {"path": "a.txt", "text": "blue"}), noting("one"), noting("two")),
    said("CONTINUE", noting("two")),  # the same again: a yes given before does not count for it
    said("CONTINUE", ("files.read", {"path": "missing.txt"}), noting("never")),
    said("CONFIRM", ("files.write", {"path": "b.txt", "text": "blue"})),
    said("CONTINUE", ("files.read", {"path": "a.txt"})),
    said("CONTINUE", ("files.read", {"path": "a.txt"})),
    said("FINISH", result="blue"),
]


def next_line(body: dict[str, Any]) -> dict[str, Any]:
    """The script's line for how much the agent remembers, so that a call that is made again gets the same reply."""
    return SCRIPT[sum(message["role"] == "assistant" for message in body["messages"])]


class CutJournal:
    """A journal of a hub that is killed: after so many events nothing more is written, ever.

    `lets_act`: what the hub does until its next event still happens; else it stops at once.
    """

    def __init__(self, journal: SqliteJournal, at: int, *, lets_act: bool) -> None:
        self._journal = journal
        self._left = at
        self._lets_act = lets_act
        self.is_cut = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def append(self, run_id: RunId, events: Any, **more: Any) -> Any:
        if self._left <= 0:
            await self._stop()
        recorded = await self._journal.append(run_id, events, **more)
        self._left -= len(recorded)
        if self._left <= 0 and not self._lets_act and recorded:
            await self._stop()
        return recorded

    async def _stop(self) -> None:
        self.is_cut.set()
        await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def hub(
    folder: Path, server: ScriptedServer, cut: int = 10**6, *, lets_act: bool = False, in_doubt: InDoubt = InDoubt.ASK
) -> AsyncIterator[tuple[Galaxy, CutJournal]]:
    """One life of a hub and its device over what the lives before left in the folder."""
    clock, ids, redactor = SystemClock(), RandomIds(), Redactor()
    async with AsyncExitStack() as stack:
        store = await SqliteJournal.open(folder / "journal.sqlite", clock)
        stack.push_async_callback(store.close)
        attempts = await AttemptJournal.open(folder / "attempts.sqlite")
        stack.push_async_callback(attempts.close)
        journal: Any = CutJournal(store, cut, lets_act=lets_act)
        model = open_model(parse_model(server.model_form), {"STARLOOM_MODEL_KEY": "k"}, lambda name: None)
        stack.push_async_callback(model.close)
        desk = ApprovalDesk(journal, ids)
        fleet = Fleet(clock=clock)
        crew = Crew(
            fleet=fleet,
            journal=journal,
            gate=Gate(desk, desk.record, ids, redactor),
            desk=desk,
            redactor=redactor,
            clock=clock,
            ids=ids,
            model=model,
            limits=Limits(),
            spending=Spending(Ledger(Budgets()), journal, clock),
        )
        tasks = await stack.enter_async_context(background())
        router = ToolRouter(builtin_toolsets(Workspace(folder / "work")))
        identity = identity_of_this_machine("here")
        connect = local_connector(fleet, tasks, "here")
        tasks.create_task(run_device(connect, router, identity, clock=clock, attempts=attempts))
        await device_ready(fleet, "here", timeout_s=10)
        settings = RunSettings(in_doubt=in_doubt)
        galaxy = Galaxy(crew, here="here", planner=no_planner, settings=settings, tasks=tasks)
        stack.push_async_callback(galaxy.close)
        yield galaxy, journal


async def no_planner(run_id: RunId) -> Any:
    raise AssertionError("a goal needs no planner")


async def person(galaxy: Galaxy, run_id: RunId) -> None:
    """Say yes to what is asked, and give the answers, as long as the run lives."""
    async for item in galaxy.journal.follow(run_id):
        match item.event:
            case ApprovalAsked(approval_id=key) if galaxy.desk.is_open(key):
                galaxy.desk.answer(key, approved=True, by="ada")
            case QuestionAsked(question_id=key, question=text) if galaxy.desk.is_open(key):
                galaxy.desk.reply(key, ANSWERS.get(text, "yes"))
            case _:
                pass


@dataclass
class Told:
    """What a run comes to, for comparison with another."""

    events: int = 0
    steps: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    prompt: list[str] = field(default_factory=list)
    ledger: str = ""
    end: RunEnded | None = None


async def tell(galaxy: Galaxy, run_id: RunId, server: ScriptedServer, folder: Path) -> Told:
    events = [item.event for item in await galaxy.journal.read(run_id)]
    told = Told(len(events), ledger=(folder / "work" / "ledger.txt").read_text())
    for event in events:
        match event:
            case AgentResponse():
                told.steps.append((event.step, event.response, event.screen, event.suspicions))
            case AgentAction():
                ended = (event.decision, event.status, clean(event.error or event.result or ""))
                told.steps.append((event.step, event.index, event.tool, *ended))
            case ApprovalAsked(arguments=arguments):
                told.asked.append(arguments)
            case QuestionAsked(question=question):
                told.asked.append(question)
            case RunEnded():
                told.end = event
            case _:
                pass
    told.prompt = [clean(text) for text in server.requests[-1].texts]
    return told


def clean(text: str) -> str:
    """Leave out what differs between two lives by its nature: the fence's mark, times, and that there was a cut."""
    text = re.sub(r"untrusted-\w+", "untrusted", text)
    text = re.sub(r"/\S+/work", "work", text)
    text = re.sub(r'"duration_s": [\d.e-]+', "", text)
    return re.sub(r"You were interrupted after your last step.*?from before\.\n\n", "", text, flags=re.DOTALL)


async def one_life(galaxy: Galaxy, journal: CutJournal, run_id: RunId) -> bool:
    """Return whether the run is over; else the hub was cut off, and is let go."""
    tasks = [asyncio.ensure_future(work) for work in (person(galaxy, run_id), galaxy.wait(run_id))]
    cut = asyncio.ensure_future(journal.is_cut.wait())
    try:
        await asyncio.wait({tasks[1], cut}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        assert tasks[1].done() or cut.done(), [item.event for item in await galaxy.journal.read(run_id)]
        return not cut.done()
    finally:
        await galaxy.close()
        for task in (*tasks, cut):
            task.cancel()
        await asyncio.gather(*tasks, cut, return_exceptions=True)


async def one_run(folder: Path, cuts: list[tuple[int, bool]]) -> tuple[Told, int]:
    """Run the goal through these cuts to its end; return what it came to, and how often the model was asked."""
    (folder / "work").mkdir(parents=True)
    run_id: RunId | None = None
    with ScriptedServer([next_line]) as server:
        for at, lets_act in [*cuts, (10**6, False)]:
            async with hub(folder, server, at, lets_act=lets_act) as (galaxy, journal):
                if run_id is None:
                    run_id = await galaxy.submit_goal(GOAL, "here")
                else:
                    await galaxy.resume_all()
                if await one_life(galaxy, journal, run_id):
                    return await tell(galaxy, run_id, server, folder), len(server.requests)
    raise AssertionError("the run never ended")


@pytest.fixture(scope="module")
def uncut(tmp_path_factory) -> tuple[Told, int]:
    told, calls = asyncio.run(one_run(tmp_path_factory.mktemp("uncut") / "run", []))
    assert told.end is not None
    assert (told.end.stop_reason, told.ledger) == ("finished", "one\ntwo\ntwo\n")
    assert (len(told.asked), calls) == (7, len(SCRIPT))
    return told, calls


FIRST = 5  # events before the first that is the agent's
LAST = 47
EVERYWHERE = [(at, lets_act) for at in range(FIRST, LAST + 1) for lets_act in (False, True)]
CUTS = EVERYWHERE if os.environ.get("STARLOOM_CHAOS") == "long" else EVERYWHERE[::9]


async def check(folder: Path, cuts: list[tuple[int, bool]], uncut: tuple[Told, int]) -> None:
    wanted, calls = uncut
    assert wanted.events == LAST + 1
    told, asked = await one_run(folder, cuts)
    assert told.steps == wanted.steps
    assert told.ledger == wanted.ledger, "each effect once"
    assert told.asked == wanted.asked, "nobody is asked twice"
    assert told.prompt == wanted.prompt
    assert (told.end.stop_reason, told.end.result) == (wanted.end.stop_reason, wanted.end.result)
    assert asked <= calls + len(cuts), "only what was in flight is asked again"


@pytest.mark.chaos
@pytest.mark.parametrize(("at", "lets_act"), CUTS)
async def test_a_run_that_is_cut_ends_as_one_that_was_not(at, lets_act, tmp_path, uncut):
    await check(tmp_path / "run", [(at, lets_act)], uncut)


@pytest.mark.chaos
@pytest.mark.parametrize("cuts", [[(9, True), (3, False), (2, True)], [(13, False), (1, True), (9, False), (12, True)]])
async def test_it_does_so_however_often_it_is_cut(cuts, tmp_path, uncut):
    await check(tmp_path / "run", cuts, uncut)


async def test_a_call_is_never_made_from_arguments_that_were_redacted(tmp_path):
    secret = {"path": "a.txt", "text": "password: hunter2hunter2"}
    lines = [said("CONTINUE", ("files.write", secret)), said("FINISH", result="told")]

    def line(body: dict[str, Any]) -> dict[str, Any]:
        return lines[sum(message["role"] == "assistant" for message in body["messages"])]

    (tmp_path / "work").mkdir()
    with ScriptedServer([line]) as server:
        async with hub(tmp_path, server, FIRST + 2) as (galaxy, journal):
            run_id = await galaxy.submit_goal("Write the password to a.txt", "here")
            assert not await one_life(galaxy, journal, run_id)
        async with hub(tmp_path, server) as (galaxy, journal):
            [reply] = [i.event for i in await galaxy.journal.read(run_id) if isinstance(i.event, AgentResponse)]
            assert (reply.withheld, "hunter2" in str(reply.response)) == (True, False)
            await galaxy.resume_all()
            assert await one_life(galaxy, journal, run_id)
            events = [item.event for item in await galaxy.journal.read(run_id)]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].stop_reason == "finished"
    assert not (tmp_path / "work" / "a.txt").exists()
    assert "says that it took effect" in server.requests[-1].texts[3]


async def test_a_secret_is_hidden_in_an_error_before_the_error_is_cut_to_its_bound(tmp_path):
    secret = "sk-" + "k" * 4_000  # so long that the cut goes through it
    path = "/".join(["x" * 90] * 39) + "/" + secret
    lines = [said("CONTINUE", ("files.read", {"path": path})), said("FAIL", comment="no")]

    def line(body: dict[str, Any]) -> dict[str, Any]:
        return lines[sum(message["role"] == "assistant" for message in body["messages"])]

    (tmp_path / "work").mkdir()
    with ScriptedServer([line]) as server:
        async with hub(tmp_path, server) as (galaxy, journal):
            run_id = await galaxy.submit_goal("Read it", "here")
            assert await one_life(galaxy, journal, run_id)
            [acted] = [i.event for i in await galaxy.journal.read(run_id) if isinstance(i.event, AgentAction)]
    assert acted.error
    assert "kkk" not in acted.error
