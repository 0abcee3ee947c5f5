"""Facts about carrying out commands: order, places, and being stopped at every moment; real tasks, no socket."""

import asyncio

import pytest

from starloom.aip.device import CommandAsked
from starloom.aip.messages import CANCELLED, Command, ResultStatus, TaskStatus
from starloom.background import background
from starloom.device.runner import SKIPPED, TOO_MANY, CommandRunner
from starloom.safety.policy import Risk
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool


class Device:
    """A runner with tools that tell what they do and wait until they may end."""

    def __init__(self, group, *, max_in_flight=1, max_waiting=3) -> None:
        self.acted: list[str] = []
        self.reports: list[tuple[str, str]] = []
        self.answers: dict[str, list[tuple[ResultStatus, str | None]]] = {}
        self.entered = asyncio.Event()
        self.gates: dict[str, asyncio.Event] = {}
        functions = (self.hold, self.note, self.stay, self.trip)
        tools = tuple(tool(item, name=f"t.{item.__name__}", risk=Risk.WRITE) for item in functions)
        self.runner = CommandRunner(
            ToolRouter([Toolset("t", tools)]),
            group,
            progress=lambda response_id, text: self.progress(response_id, text),
            max_in_flight=max_in_flight,
            max_waiting=max_waiting,
        )

    async def hold(self, name: str) -> str:
        """Wait until it may end."""
        self.acted.append(name)
        self.entered.set()
        await self.gates.setdefault(name, asyncio.Event()).wait()
        return name

    async def note(self, name: str) -> str:
        """Note it."""
        self.acted.append(name)
        return name

    async def stay(self, name: str) -> str:
        """Take no notice of being cancelled."""
        self.acted.append(name)
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.acted.append("stayed")
        return name

    async def trip(self, name: str) -> str:
        """Wait for what somebody cancels."""
        self.acted.append(name)
        waited = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waited.cancel)
        await waited
        return name

    def progress(self, response_id: str, text: str) -> None:
        self.reports.append((response_id, text))

    def ask(self, response_id: str, *tools: str) -> None:
        actions = tuple(Command(f"t.{name}", {"name": response_id}, call_id=f"c{n}") for n, name in enumerate(tools))
        self.runner.start(CommandAsked(response_id, None, TaskStatus.CONTINUE, actions), self.answer)

    def answer(self, command, results) -> None:
        assert command.response_id not in self.answers, "answered twice"
        assert [result.call_id for result in results] == [action.call_id for action in command.actions]
        self.answers[command.response_id] = [(result.status, result.error) for result in results]

    async def until(self, is_so) -> None:
        """Let others have their turns until it is so; they need no more than a few."""
        for _ in range(50):
            if is_so():
                return
            await asyncio.sleep(0)
        raise AssertionError(f"never: acted {self.acted}, answered {self.answers}")


DONE = (ResultStatus.SUCCESS, None)
STOPPED = (ResultStatus.FAILURE, CANCELLED)
LEFT_OUT = (ResultStatus.SKIPPED, SKIPPED)


async def test_commands_have_places_and_the_rest_waits_in_order():
    async with background() as group:
        device = Device(group, max_in_flight=2, max_waiting=2)
        for number in range(5):
            device.ask(f"r{number}", "hold")
        assert device.answers == {"r4": [(ResultStatus.FAILURE, TOO_MANY)]}
        await device.until(lambda: len(device.acted) == 2)
        device.gates["r1"].set()
        await device.until(lambda: len(device.acted) == 3)
        assert list(device.answers) == ["r4", "r1"]
        assert len(device.runner) == 3
        device.gates["r0"].set()
        await device.until(lambda: device.acted == ["r0", "r1", "r2", "r3"])
        device.gates["r2"].set()
        device.gates["r3"].set()
        await device.until(lambda: len(device.answers) == 5)
        assert len(device.runner) == 0


async def test_group_ends_when_its_commands_have():
    async with asyncio.TaskGroup() as group:
        device = Device(group)
        for number in range(3):
            device.ask(f"r{number}", "note", "note")
    assert list(device.answers) == ["r0", "r1", "r2"]
    assert device.reports == [(f"r{number}", f"{part}/2") for number in range(3) for part in (1, 2)]


async def test_one_that_waits_is_answered_as_stopped_at_once_and_never_begins():
    async with background() as group:
        device = Device(group)
        for name in ("r0", "r1", "r2"):
            device.ask(name, "hold", "note")
        await device.entered.wait()
        device.runner.cancel("r1")
        device.runner.cancel("r1")
        device.runner.cancel("unheard of")
        assert device.answers == {"r1": [STOPPED, LEFT_OUT]}
        device.runner.cancel("r0")
        await device.until(lambda: "r0" in device.answers and "r2" in device.acted)
        assert device.answers["r0"] == [STOPPED, LEFT_OUT]
        assert device.acted == ["r0", "r2"]


async def test_one_that_is_stopped_before_its_task_begins_does_nothing():
    async with background() as group:
        device = Device(group)
        device.ask("r0", "note")
        device.ask("r1", "note")
        device.runner.cancel("r0")
        await device.until(lambda: len(device.answers) == 2)
        assert device.answers == {"r0": [STOPPED], "r1": [DONE]}
        assert device.acted == ["r1"]


async def test_all_with_one_id_are_stopped_and_each_is_counted():
    async with background() as group:
        device = Device(group, max_waiting=1)
        answers = []
        command = CommandAsked("r", None, TaskStatus.CONTINUE, (Command("t.hold", {"name": "r"}),))
        for _ in range(3):
            device.runner.start(command, lambda _, results: answers.append(results[0].error))
        assert answers == [TOO_MANY]
        await device.entered.wait()
        device.runner.cancel("r")
        await device.until(lambda: len(device.runner) == 0)
        assert answers == [TOO_MANY, CANCELLED, CANCELLED]


@pytest.mark.parametrize("times", [1, 3])
async def test_tool_that_takes_no_notice_gives_its_place_on_all_the_same(times):
    async with background() as group:
        device = Device(group)
        device.ask("r0", "stay")
        device.ask("r1", "note")
        await device.entered.wait()
        for _ in range(times):
            device.runner.cancel("r0")
        await device.until(lambda: len(device.answers) == 2)
        assert device.answers == {"r0": [DONE], "r1": [DONE]}


async def test_command_that_stops_itself_between_two_actions_is_answered_and_the_next_begins():
    async with background() as group:
        device = Device(group)
        device.progress = lambda response_id, _: device.runner.cancel(response_id)
        device.ask("r0", "note", "hold")
        device.ask("r1", "note")
        await device.until(lambda: len(device.answers) == 2)
        assert device.answers == {"r0": [DONE, STOPPED], "r1": [DONE]}


async def test_tool_whose_inside_was_cancelled_has_failed_and_its_command_is_answered(caplog):
    async with background() as group:
        device = Device(group)
        device.ask("r0", "trip", "note")
        device.ask("r1", "note")
        await device.until(lambda: len(device.answers) == 2)
    (status, error), second = device.answers["r0"]
    assert status is ResultStatus.FAILURE
    assert "broke inside: CancelledError" in error
    assert second == LEFT_OUT
    assert device.answers["r1"] == [DONE]


@pytest.mark.parametrize("running", ["hold", "stay"])
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_end_of_the_process_begins_nothing_more(running, is_stopped):
    async def process() -> None:
        nonlocal device
        async with asyncio.TaskGroup() as group:
            device = Device(group)
            device.ask("r0", running)
            device.ask("r1", "note")
            await asyncio.Event().wait()

    device = None
    task = asyncio.ensure_future(process())
    await asyncio.sleep(0)
    await device.entered.wait()
    if is_stopped:
        device.runner.cancel("r0")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "r1" not in [*device.answers, *device.acted]
