"""Facts about requests that may be sent again."""

import asyncio
from types import SimpleNamespace

from starloom.clock import SystemClock
from starloom.ids import RunId
from starloom.journal.events import RunStarted
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.requests import Request
from starloom.session.changing import Starts


async def test_one_key_with_two_bodies_at_once_begins_one_run():
    journal = MemoryJournal(SystemClock())
    starts = Starts(SimpleNamespace(journal=journal))

    async def begin(run_id: RunId) -> RunId:
        await asyncio.sleep(0)  # the other request has its turn here
        await journal.append(run_id, [RunStarted("x")])
        return run_id

    requests = [Request("key", letter * 64) for letter in "ab"]
    found = await asyncio.gather(*(starts.start(request, begin) for request in requests), return_exceptions=True)
    assert sum(isinstance(one, str) for one in found) == 1
    assert len(await journal.runs(10)) == 1
