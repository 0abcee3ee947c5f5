"""`TaskConstellationOrchestrator`: several constellations in one process that never touch each other; seed 4's name.

For code that brings its own executor and devices; the session uses `Runner` directly. Each constellation is a run of
its own; a cancel reaches that run alone, and the engine is as good as new afterwards.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from starloom.clock import Clock, SystemClock
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.enums import DeviceType
from starloom.errors import UsageError
from starloom.ids import DeviceId, Ids, RandomIds, RunId
from starloom.journal.store import Journal
from starloom.orchestrator.ports import DeviceDirectory, DeviceOffer, TaskExecutor
from starloom.orchestrator.runner import Runner, RunResult
from starloom.orchestrator.settings import RunSettings

_logger = logging.getLogger(__name__)


class ConstellationDeviceManager:
    """A device directory kept by hand: who registered and has not left."""

    def __init__(self) -> None:
        self._offers: dict[DeviceId, DeviceOffer] = {}
        self._addresses: dict[DeviceId, str] = {}
        self._watchers: set[asyncio.Event] = set()

    def register_device(
        self,
        device_id: str,
        device_type: DeviceType | str,
        address: str = "",
        *,
        tools: frozenset[str] = frozenset(),
        max_tasks: int = 1,
    ) -> None:
        """Count a device as connected; registering it again replaces what was known of it."""
        kind = DeviceType(device_type)
        self._offers[DeviceId(device_id)] = DeviceOffer(DeviceId(device_id), kind.value, tools, max_tasks)
        self._addresses[DeviceId(device_id)] = address
        self._tell()

    def unregister_device(self, device_id: str) -> None:
        """Count a device as gone; nothing happens when it was not there."""
        self._offers.pop(DeviceId(device_id), None)
        self._addresses.pop(DeviceId(device_id), None)
        self._tell()

    def address_of(self, device_id: str) -> str | None:
        """Return where a device was said to be; None for an unknown one."""
        return self._addresses.get(DeviceId(device_id))

    def offers(self) -> tuple[DeviceOffer, ...]:
        """Return the devices in the order they came."""
        return tuple(self._offers.values())

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever a device came or went; every run has a watch of its own."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield
        finally:
            self._watchers.discard(changed)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed.set()


class TaskConstellationOrchestrator:
    """Runs constellations, each on its own.

    Args:
        device_manager: knows the devices.
        enable_logging: log the start and the end of each constellation.
        executor: performs attempts; needed to run anything.
        journal: where runs are recorded; None keeps nothing.
        settings: limits and policies of every run.
        clock: time.
        ids: makes the runs' ids.
    """

    def __init__(
        self,
        device_manager: DeviceDirectory,
        enable_logging: bool = True,
        *,
        executor: TaskExecutor | None = None,
        journal: Journal | None = None,
        settings: RunSettings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._devices = device_manager
        self._logs = enable_logging
        self._executor = executor
        self._journal = journal
        self._settings = settings
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._runners: dict[RunId, Runner] = {}

    async def orchestrate_constellation(self, constellation: TaskConstellation) -> RunResult:
        """Run a constellation to its end.

        Raises:
            UsageError: there is no executor.
        """
        if self._executor is None:
            raise UsageError("The orchestrator has no executor; give it one to run a constellation.")
        run_id = RunId(self._ids.new("run"))
        runner = Runner(
            run_id,
            executor=self._executor,
            devices=self._devices,
            clock=self._clock,
            journal=self._journal,
            settings=self._settings,
        )
        self._runners[run_id] = runner
        self._log("Constellation %s starts as %s", constellation.constellation_id, run_id)
        try:
            result = await runner.run(constellation)
        finally:
            del self._runners[run_id]
        self._log("Constellation %s ended: %s", constellation.constellation_id, result.stop_reason)
        return result

    async def cancel_execution(self, constellation: str) -> bool:
        """Cancel the runs of a constellation, by its id or name, and no other; return whether there was one."""
        runners = [
            runner
            for runner in self._runners.values()
            if constellation in {runner.constellation.constellation_id, runner.constellation.name}
        ]
        for runner in runners:
            await runner.cancel(reason="cancelled by its name")
        return bool(runners)

    def _log(self, message: str, *values: str) -> None:
        if self._logs:
            _logger.info(message, *values)
