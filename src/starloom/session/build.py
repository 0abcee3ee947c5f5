"""The composition root: the only file that knows everyone.

Called by `cli` and by tests. It opens what a hub needs, joins the rooms through their ports, and closes everything in
the opposite order when the block is left.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starloom.background import Background, background
from starloom.clock import Clock, SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.device.identity import DeviceIdentity, identity_of_this_machine
from starloom.device.process import run_device
from starloom.errors import DeviceError, UsageError
from starloom.fleet.credentials import CredentialStore
from starloom.fleet.fleet import Fleet
from starloom.fleet.known import KnownDevices
from starloom.fleet.local import local_connector
from starloom.ids import Ids, RandomIds
from starloom.journal.sqlite import SqliteJournal
from starloom.journal.store import Journal
from starloom.llm.budgets import Ledger
from starloom.llm.tracing import provider_here
from starloom.places import Places
from starloom.safety.gate import Gate
from starloom.safety.redaction import Redactor, secrets_of_environment
from starloom.session.desk import ApprovalDesk
from starloom.session.executor import Crew
from starloom.session.galaxy import Galaxy
from starloom.session.incoming import WireTasks
from starloom.session.models import opened_models
from starloom.session.open_calls import OpenCalls
from starloom.session.profiles import device_there
from starloom.session.round import Limits
from starloom.session.run_spans import traced
from starloom.session.spending import Spending
from starloom.settings import Settings
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.router import ToolRouter
from starloom.tools.taking_back import effects_toolset
from starloom.tools.toolset import Toolset
from starloom.tools.workspace import Workspace

_LOCAL_DEVICE_TIMEOUT_S = 10.0


@asynccontextmanager
async def galaxy_here(
    place: Places,
    settings: Settings,
    *,
    workspace: Path,
    toolsets: Sequence[Toolset] = (),
    clock: Clock | None = None,
    ids: Ids | None = None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Galaxy]:
    """Run a hub in this process, its local device working in `workspace`, for as long as the block runs.

    `toolsets` are offered on the local device beside the built-in ones.

    Raises:
        UsageError: the workspace is not a folder.
        StoreError: the data folder cannot be written, or another hub owns it.
    """
    if not await asyncio.to_thread(workspace.is_dir):
        raise UsageError(f"The workspace {str(workspace)!r} is not a folder.", path=str(workspace))
    clock, ids = clock or SystemClock(), ids or RandomIds()
    redactor = Redactor(secrets_of_environment(environ))
    async with contextlib.AsyncExitStack() as stack:
        journal, spans = traced(await SqliteJournal.open(place.journal, clock), provider_here())
        stack.push_async_callback(journal.close)
        attempts = await AttemptJournal.open(place.data / "attempts" / "local.sqlite")
        stack.push_async_callback(attempts.close)
        spending = Spending(Ledger(settings.budgets), journal, clock, OpenCalls(place.data / "open-calls"), spans=spans)
        await spending.count_open_calls()
        await spending.take_up_today()
        models = await stack.enter_async_context(opened_models(place, settings.models, environ, clock, spending))
        wire_tasks = WireTasks()
        credentials = await asyncio.to_thread(CredentialStore, clock, place.data / "credentials.json")
        known = KnownDevices(place.data / "devices.sqlite")
        stack.callback(known.close)
        fleet = Fleet(clock=clock, settings=settings.fleet, tasks=wire_tasks, credentials=credentials, known=known)
        desk = ApprovalDesk(journal, ids)
        crew = Crew(
            fleet=fleet,
            journal=journal,
            gate=Gate(desk, desk.record, ids, redactor),
            desk=desk,
            redactor=redactor,
            clock=clock,
            ids=ids,
            model=models.model,
            limits=Limits(max_steps=settings.hub.max_steps),
            spending=spending,
        )
        tasks = await stack.enter_async_context(background())
        identity = identity_of_this_machine(settings.hub.device_name)
        offered = [*builtin_toolsets(Workspace(workspace)), *toolsets]
        router = ToolRouter(offered, unlisted=(effects_toolset(workspace),))
        await _start_device(fleet, identity, router, attempts=attempts, clock=clock, tasks=tasks)
        galaxy = Galaxy(crew, here=identity.device_id, planner=models.planner, settings=settings.runs, tasks=tasks)
        wire_tasks.hand_to(galaxy)
        tasks.create_task(galaxy.acknowledge(), name="acknowledgements")
        stack.push_async_callback(galaxy.close)
        yield galaxy


async def _start_device(
    fleet: Fleet,
    identity: DeviceIdentity,
    router: ToolRouter,
    *,
    attempts: AttemptJournal,
    clock: Clock,
    tasks: Background,
) -> None:
    """Start the hub's own device and return when it can take work."""
    fleet.release(identity.device_id)  # its last process had this data folder, which is ours alone
    connect = local_connector(fleet, tasks, identity.device_id)
    device = run_device(connect, router, identity, clock=clock, attempts=attempts)
    tasks.create_task(device, name="local device")
    await device_ready(fleet, identity.device_id, timeout_s=_LOCAL_DEVICE_TIMEOUT_S)


@asynccontextmanager
async def reading_journal(place: Places) -> AsyncIterator[Journal]:
    """Open the journal to read, beside a running hub if there is one.

    Raises:
        UsageError: nothing was ever journalled here.
    """
    if not await asyncio.to_thread(place.journal.exists):
        raise UsageError("There are no runs yet. Start with `starloom demo`, or `starloom run 'what you want done'`.")
    journal = await SqliteJournal.open(place.journal, SystemClock(), read_only=True)
    try:
        yield journal
    finally:
        await journal.close()


async def device_ready(fleet: Fleet, device_id: str, *, timeout_s: float) -> None:
    """Return when the device can take work.

    Raises:
        DeviceError: it is not there in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await device_there(fleet, device_id)
    except TimeoutError:
        raise DeviceError(f"Device {device_id!r} did not join within {timeout_s:g} s.", device_id=device_id) from None
