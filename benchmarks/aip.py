"""The wire's cost: round trips beside a bare echo, and many devices on one hub.

    python benchmarks/aip.py [roundtrip] [fleet] [--devices N] [--tasks N] [--calls N]

`roundtrip`: one device over a real WebSocket on loopback, one COMMAND after another; beside it a bare `websockets`
client and server that exchange the same bodies. Both ends run in this process, so CPU is of both.
`fleet`: N simulated devices over real sockets: memory per device, CPU while idle, one hub driving them with tasks, and
the time until all are back after a restart. Simulated devices answer in a process of their own.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import serve

from starloom.aip.messages import Command
from starloom.aip.websocket import accepted, connect
from starloom.blobs import Blob
from starloom.clock import SystemClock
from starloom.device.identity import DeviceIdentity
from starloom.device.process import run_device
from starloom.device.settings import DeviceSettings
from starloom.fleet.fleet import Fleet
from starloom.fleet.settings import FleetSettings
from starloom.hub.wire import WireProtocol
from starloom.safety.policy import Risk
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool

SCREENSHOT = Blob("image/png", os.urandom(2 * 1024 * 1024))


def memory_mb(pid: int | str = "self") -> float:
    """Return a process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s() -> float:
    """Return the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


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
        self.listening = socket.create_server(("127.0.0.1", port), backlog=4096)
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


def show(name: str, times: list[float], cpu: float) -> None:
    """Print one line of figures."""
    times = sorted(times)
    p50, p99 = statistics.median(times) * 1e3, times[int(len(times) * 0.99)] * 1e3
    rate = len(times) / sum(times)
    print(f"{name:38} p50 {p50:7.3f} ms  p99 {p99:7.3f} ms  {rate:8.0f}/s  CPU {cpu / len(times) * 1e6:7.0f} us each")


async def roundtrip(calls: int) -> None:
    """Measure round trips beside a bare echo with the same bodies."""
    command = [Command(tool_name="bench.echo", parameters={"text": "x" * 200})]
    async with Hub() as hub:
        identity = DeviceIdentity("dev1", "linux", "linux", {})
        device = asyncio.create_task(run_device(lambda: connect(hub.url), router(), identity, clock=SystemClock()))
        await idle(hub.fleet, 1)
        await timed(calls // 10, lambda: hub.fleet.call("dev1", command, session_id="s"))
        times, cpu = await timed(calls, lambda: hub.fleet.call("dev1", command, session_id="s"))
        show("starloom: COMMAND and results", times, cpu)
        starloom = cpu
        device.cancel()
        await asyncio.gather(device, return_exceptions=True)
        await screenshots(hub)
    asked, answered = bodies(command)
    print(f"{'':38} bodies: {len(asked)} and {len(answered)} bytes")
    for name, parse in (("bare websockets echo", False), ("  the same, JSON parsed and written", True)):
        times, cpu = await echo(asked, answered, calls, parse=parse)
        show(name, times, cpu)
        print(f"{'':38} Starloom's CPU is {starloom / cpu:.1f} times this")


async def screenshots(hub: Hub) -> None:
    """Measure a 2 MB screenshot in binary frames beside base64 in the message, in turns."""
    command = [Command(tool_name="bench.screenshot", tool_type="data_collection")]
    devices = {binary: DeviceIdentity(f"screen-{binary}", "linux", "linux", {}) for binary in (True, False)}
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(
                run_device(
                    lambda: connect(hub.url),
                    router(),
                    identity,
                    clock=SystemClock(),
                    settings=DeviceSettings(binary_images=binary),
                )
            )
            for binary, identity in devices.items()
        ]
        await idle(hub.fleet, 2)
        ways = (
            ("2 MB screenshot: binary frames", True, True),
            ("  the same, handed out as a data URL", True, False),
            ("2 MB screenshot: base64", False, False),
        )
        spent: dict[str, tuple[list[float], float]] = {}
        for _ in range(6):
            for name, binary, blobs in ways:
                call = partial(hub.fleet.call, devices[binary].device_id, command, session_id="s", blobs=blobs)
                times, cpu = await timed(5, call)
                earlier = spent.get(name, ([], 0.0))
                spent[name] = (earlier[0] + times, earlier[1] + cpu)
        for name, (times, cpu) in spent.items():
            show(name, times, cpu)
        base64_cpu = spent["2 MB screenshot: base64"][1]
        print(f"{'':38} base64's CPU is {base64_cpu / spent['2 MB screenshot: binary frames'][1]:.1f} times binary's")
        for task in running:
            task.cancel()


def bodies(commands: list[Command]) -> tuple[str, str]:
    """Return texts as long as what the wire carries for these commands and their results."""
    from starloom.aip.messages import ClientMessage, Result, ServerMessage

    uuid, stamp = "0" * 36, "2026-01-02T03:04:05.678901+00:00"
    commands = [command.model_copy(update={"call_id": uuid}) for command in commands]
    asked = ServerMessage(
        type="command", status="continue", actions=commands, session_id="s", timestamp=stamp, response_id=uuid
    )
    results = [Result(status="success", result="x" * 200, namespace="bench", call_id=uuid)]
    answered = ClientMessage(
        type="command_results", status="continue", client_id="dev1", session_id="s", action_results=results,
        timestamp=stamp, request_id=uuid, prev_response_id=uuid,
    )  # fmt: skip
    return asked.to_json(), answered.to_json()


async def echo(asked: str, answered: str, calls: int, *, parse: bool) -> tuple[list[float], float]:
    """Measure a bare client and server that exchange these bodies."""

    async def answer(websocket) -> None:
        async for text in websocket:
            if parse:
                json.loads(text)
                await websocket.send(json.dumps(json.loads(answered)))
            else:
                await websocket.send(answered)

    async with serve(answer, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with dial(f"ws://127.0.0.1:{port}", compression=None) as websocket:

            async def once() -> None:
                await websocket.send(json.dumps(json.loads(asked)) if parse else asked)
                text = await websocket.recv()
                if parse:
                    json.loads(text)

            await timed(calls // 10, once)
            return await timed(calls, once)


async def timed(calls: int, once) -> tuple[list[float], float]:
    """Call again and again; return every time and the CPU of all."""
    times, began = [], cpu_s()
    for _ in range(calls):
        start = time.perf_counter()
        await once()
        times.append(time.perf_counter() - start)
    return times, cpu_s() - began


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


async def fleet(devices: int, tasks: int) -> None:
    """Measure many devices on one hub."""
    settings = FleetSettings(max_unregistered=10_000, heartbeat_s=20)
    before = memory_mb()
    async with Hub(settings) as hub:
        port = hub.listening.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--simulate", str(devices), "--url", hub.url
        )
        cpu, seconds = cpu_s(), await idle(hub.fleet, devices)
        each_kb = (memory_mb() - before) * 1024 / devices
        print(f"{devices} devices are idle after {seconds:.1f} s ({cpu_s() - cpu:.1f} s CPU); {each_kb:.0f} KB each")
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
    async with Hub(settings, port) as hub:
        seconds = await idle(hub.fleet, devices)
        print(f"after a restart of the hub all {devices} are back after {seconds:.1f} s")
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
        asyncio.run(simulate(options.url, options.simulate))
        return
    if "roundtrip" in options.what:
        asyncio.run(roundtrip(options.calls))
    if "fleet" in options.what:
        asyncio.run(fleet(options.devices, options.tasks))


if __name__ == "__main__":
    main()
