"""The wire's cost: round trips beside a bare echo, and many devices on one hub.

    python benchmarks/aip.py [roundtrip] [fleet] [--devices N] [--tasks N] [--calls N]

`roundtrip`: one device over a real WebSocket on loopback, one COMMAND after another; beside it a bare `websockets`
client and server that exchange the same bodies. Both ends run in this process, so CPU is of both.
`fleet`: N simulated devices over real sockets: memory per device, CPU while idle, one hub driving them with tasks, and
the time until all are back after a restart. Simulated devices answer in a process of their own.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import serve

from starloom.aip.messages import ClientMessage, Command, Result, ServerMessage
from starloom.aip.websocket import accepted, connect
from starloom.blobs import Blob
from starloom.clock import SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.device.identity import DeviceIdentity
from starloom.device.process import run_device
from starloom.device.settings import DeviceSettings
from starloom.fleet.fleet import Fleet
from starloom.fleet.settings import FleetSettings
from starloom.hub.serve import bind, few_full_collections
from starloom.hub.wire import WireProtocol
from starloom.safety.policy import Risk
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool

Call = Callable[[], Awaitable[Any]]
AT_ONCE = 4
SCREENSHOT = Blob("image/png", os.urandom(2 * 1024 * 1024))


def memory_mb(pid: int | str = "self") -> float:
    """Return a process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(pid: int | str = "self") -> float:
    """Return the CPU seconds of a process."""
    if pid == "self":
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def router() -> ToolRouter:
    """Return a router with one tool that returns its argument."""

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    async def screenshot() -> Blob:
        """Return 2 MB that do not compress."""
        return SCREENSHOT

    tools = (
        tool(echo, name="bench.echo", risk=Risk.READ),
        tool(screenshot, name="bench.screenshot", risk=Risk.READ, kind="data_collection"),
    )
    return ToolRouter([Toolset("bench", tools)])


class Hub:
    """A fleet behind a real listener."""

    def __init__(self, settings: FleetSettings | None = None, port: int = 0) -> None:
        self.fleet = Fleet(clock=SystemClock(), settings=settings)
        self.listening = bind("127.0.0.1", port)  # one made by `socket.create_server` would lack TCP_NODELAY
        self.url = f"ws://127.0.0.1:{self.listening.getsockname()[1]}/ws"

        async def endpoint(websocket: WebSocket) -> None:
            await websocket.accept()
            await self.fleet.serve(accepted(websocket))

        app = Starlette(routes=[WebSocketRoute("/ws", endpoint)])
        config = uvicorn.Config(
            app, ws=WireProtocol, log_level="critical", lifespan="off", ws_per_message_deflate=False, backlog=4096
        )
        self.server = uvicorn.Server(config)

    async def __aenter__(self) -> "Hub":
        self.task = asyncio.create_task(self.server._serve([self.listening]))
        return self

    async def __aexit__(self, *_) -> None:
        await self.fleet.close()
        self.server.should_exit = True
        await self.task


async def idle(fleet: Fleet, count: int) -> float:
    """Return the seconds until that many devices are idle."""
    began = time.perf_counter()
    async for _ in fleet.changes():
        if sum(record.status == "idle" for record in fleet.records()) >= count:
            return time.perf_counter() - began
        await asyncio.sleep(0.05)  # counting 5,000 records on every change would be the measurement
    raise AssertionError("unreachable")


@dataclass(slots=True)
class Spent:
    """What calls took: the time of each, and the CPU of all."""

    times: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def cpu_each(self) -> float:
        """Return the CPU seconds of one call."""
        return self.cpu / len(self.times)

    def show(self, name: str, beside: "Spent | None" = None) -> None:
        """Print one line of figures."""
        times = sorted(self.times)
        p50, p99 = statistics.median(times) * 1e3, times[int(len(times) * 0.99)] * 1e3
        ratio = f"{self.cpu_each / beside.cpu_each:6.2f} x" if beside is not None else ""
        rate = len(times) / sum(times)
        print(
            f"{name:44} p50 {p50:7.3f} ms  p99 {p99:7.3f} ms {rate:7.0f}/s  CPU {self.cpu_each * 1e6:6.0f} us {ratio}"
        )


async def in_turns(calls: int, ways: dict[str, Call], *, rounds: int = 20) -> dict[str, Spent]:
    """Call each way again and again, in turns, so that a busy machine is as unfair to all."""
    spent = {name: Spent() for name in ways}
    for call in ways.values():
        for _ in range(calls // 20):
            await call()
    for _ in range(rounds):
        for name, call in ways.items():
            began = cpu_s()
            for _ in range(max(1, calls // rounds)):
                start = time.perf_counter()
                await call()
                spent[name].times.append(time.perf_counter() - start)
            spent[name].cpu += cpu_s() - began
    return spent


@contextlib.asynccontextmanager
async def device(hub: Hub, name: str, settings: DeviceSettings | None = None, folder: Path | None = None):
    """Have a device on a hub; with a folder it keeps a record of attempts there."""
    attempts = await AttemptJournal.open(folder / "attempts.db") if folder is not None else None
    identity = DeviceIdentity(name, "linux", "linux", {})
    task = asyncio.create_task(
        run_device(
            lambda: connect(hub.url), router(), identity, clock=SystemClock(), settings=settings, attempts=attempts
        )
    )
    async for _ in hub.fleet.changes():
        if any(record.device_id == name and record.status == "idle" for record in hub.fleet.records()):
            break
    yield name
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if attempts is not None:
        await attempts.close()


async def roundtrip(calls: int) -> None:
    """Measure round trips beside echoes that exchange the same bodies, two frames each."""
    command = Command(tool_name="bench.echo", parameters={"text": "x" * 200})
    asked, answered = bodies([command])
    numbers = itertools.count()
    async with contextlib.AsyncExitStack() as stack:
        hub = await stack.enter_async_context(Hub())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain = await stack.enter_async_context(device(hub, "plain"))
        kept = await stack.enter_async_context(device(hub, "kept", DeviceSettings(max_in_flight=AT_ONCE), folder))

        async def attempt() -> None:
            call_id = f"run:task:{next(numbers)}"
            await hub.fleet.call(kept, [replace(command, call_id=call_id)], session_id="s", once=True)
            hub.fleet.committed(kept, [call_id])

        async def several() -> None:
            await asyncio.gather(*(attempt() for _ in range(AT_ONCE)))

        ways = {
            "bare websockets echo": await stack.enter_async_context(echo(asked, answered)),
            "  behind uvicorn and starlette": await stack.enter_async_context(asgi_echo(asked, answered)),
            "  bare, parsed and written with our models": await stack.enter_async_context(
                modelled_echo(asked, answered)
            ),
            "starloom: COMMAND and results": partial(hub.fleet.call, plain, [command], session_id="s"),
        }
        spent = await in_turns(calls, ways)
        kept_ways = {
            "  with the record of attempts, synced to disk": attempt,
            f"  {AT_ONCE} of these at once, until the last is back": several,
        }
        spent |= await in_turns(calls // 20, kept_ways)
        bare = spent["bare websockets echo"]
        for name, figures in spent.items():
            figures.show(name, bare)
        print(f"{'':44} bodies: {len(asked)} and {len(answered)} bytes; CPU of both ends, beside the bare echo")
        await screenshots(hub)


async def screenshots(hub: Hub) -> None:
    """Measure a 2 MB screenshot in binary frames beside base64 in the message."""
    command = [Command(tool_name="bench.screenshot", tool_type="data_collection")]
    async with (
        device(hub, "binary") as binary,
        device(hub, "base64", DeviceSettings(binary_images=False)) as base64,
    ):
        ways = {
            "2 MB screenshot: base64": partial(hub.fleet.call, base64, command, session_id="s"),
            "2 MB screenshot: binary frames": partial(hub.fleet.call, binary, command, session_id="s", blobs=True),
            "  handed out as a data URL all the same": partial(hub.fleet.call, binary, command, session_id="s"),
        }
        spent = await in_turns(40, ways)
        for name, figures in spent.items():
            figures.show(name, spent["2 MB screenshot: base64"])


def bodies(commands: list[Command]) -> tuple[str, str]:
    """Return texts as long as what the wire carries for these commands and their results."""
    uuid, stamp = "0" * 36, "2026-01-02T03:04:05.678901+00:00"
    commands = [replace(command, call_id=uuid) for command in commands]
    asked = ServerMessage(
        type="command", status="continue", actions=commands, session_id="s", timestamp=stamp, response_id=uuid
    )
    results = [Result(status="success", result="x" * 200, namespace="bench", call_id=uuid)]
    answered = ClientMessage(
        type="command_results", status="continue", client_id="dev1", session_id="s", action_results=results,
        timestamp=stamp, request_id=uuid, prev_response_id=uuid,
    )  # fmt: skip
    return asked.to_json(), answered.to_json()


@contextlib.asynccontextmanager
async def echo(asked: str, answered: str):
    """Offer a bare client and server that exchange these bodies."""

    async def answer(websocket) -> None:
        async for _ in websocket:
            await websocket.send(answered)

    async with (
        serve(answer, "127.0.0.1", 0, compression=None) as server,
        dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", compression=None) as websocket,
    ):

        async def once() -> None:
            await websocket.send(asked)
            await websocket.recv()

        yield once


@contextlib.asynccontextmanager
async def modelled_echo(asked: str, answered: str):
    """Offer the same where both ends read and write the wire's models."""
    question, result = ServerMessage.from_json(asked), ClientMessage.from_json(answered)

    async def answer(websocket) -> None:
        async for text in websocket:
            ServerMessage.from_json(text)
            await websocket.send(result.to_json())

    async with (
        serve(answer, "127.0.0.1", 0, compression=None) as server,
        dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", compression=None) as websocket,
    ):

        async def once() -> None:
            await websocket.send(question.to_json())
            ClientMessage.from_json(await websocket.recv())

        yield once


@contextlib.asynccontextmanager
async def asgi_echo(asked: str, answered: str):
    """Offer the same with a server of uvicorn's and starlette's."""

    async def endpoint(websocket: WebSocket) -> None:
        await websocket.accept()
        async for _ in websocket.iter_text():
            await websocket.send_text(answered)

    listening = bind("127.0.0.1", 0)
    app = Starlette(routes=[WebSocketRoute("/ws", endpoint)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws_per_message_deflate=False))
    serving = asyncio.create_task(server._serve([listening]))
    async with dial(f"ws://127.0.0.1:{listening.getsockname()[1]}/ws", compression=None) as websocket:

        async def once() -> None:
            await websocket.send(asked)
            await websocket.recv()

        yield once
    server.should_exit = True
    await serving


async def simulate(url: str, count: int) -> None:
    """Be many devices until killed."""
    tools = router()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            identity = DeviceIdentity(f"dev{number}", "linux", "linux", {"device_id": f"dev{number}"})
            group.create_task(
                run_device(lambda: connect(url), tools, identity, clock=SystemClock(), settings=DeviceSettings())
            )
            if number % 50 == 49:
                await asyncio.sleep(0.02)


async def arrival(hub: Hub, devices: int, pid: int) -> str:
    """Wait until that many devices are idle, and tell the time and the CPU of both processes."""
    ours, theirs = cpu_s(), cpu_s(pid)
    seconds = await idle(hub.fleet, devices)
    ours, theirs = cpu_s() - ours, cpu_s(pid) - theirs
    each = f"{ours / devices * 1e6:.0f} and {theirs / devices * 1e6:.0f} us a device"
    return f"{seconds:.1f} s; CPU: hub {ours:.1f} s, devices {theirs:.1f} s ({each})"


async def fleet(devices: int, tasks: int) -> None:
    """Measure many devices on one hub."""
    settings = FleetSettings(max_unregistered=10_000, heartbeat_s=20)
    before = memory_mb()
    async with Hub(settings) as hub:
        port = hub.listening.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--simulate", str(devices), "--url", hub.url
        )
        print(f"{devices} devices are idle after {await arrival(hub, devices, process.pid)}")
        print(f"memory: {(memory_mb() - before) * 1024 / devices:.0f} KB each")
        cpu, began = cpu_s(), time.perf_counter()
        await asyncio.sleep(20)
        print(f"idle: {(cpu_s() - cpu) / (time.perf_counter() - began) * 100:.1f} % of one CPU")
        driven = min(devices, 500)
        cpu, began = cpu_s(), time.perf_counter()

        async def drive(device_id: str) -> None:
            command = [Command(tool_name="bench.echo", parameters={"text": "x"})]
            for number in range(tasks):
                await hub.fleet.call(device_id, command, session_id=f"{device_id}-{number}")

        await asyncio.gather(*(drive(f"dev{number}") for number in range(driven)))
        seconds = time.perf_counter() - began
        total = driven * tasks
        print(f"{driven} devices x {tasks} tasks: {seconds:.1f} s, {total / seconds:.0f}/s, {cpu_s() - cpu:.1f} s CPU")
    gc.collect()  # a hub that was started again would have none of what the old one leaves
    async with Hub(settings, port) as hub:
        print(f"after a restart of the hub all are back after {await arrival(hub, devices, process.pid)}")
        process.send_signal(signal.SIGKILL)
        await process.wait()


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["roundtrip", "fleet"])
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--simulate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft < hard else (soft, hard))
    if options.simulate:
        with few_full_collections():  # a real device's process holds few objects
            asyncio.run(simulate(options.url, options.simulate))
        return
    if "roundtrip" in options.what:
        asyncio.run(roundtrip(options.calls))
    if "fleet" in options.what:
        with few_full_collections():  # as `hub.serve.serving` has it
            asyncio.run(fleet(options.devices, options.tasks))


if __name__ == "__main__":
    main()
