"""What a model step costs in our layer: CPU beside the bare client and pydantic-ai used directly; and import weight.

Run: python benchmarks/llm.py [--steps 200]. A scripted server answers in a process of its own, so only the client's
CPU is counted. Ratios hold between machines, absolute times do not.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from pydantic import BaseModel

from starloom.llm.scripted import ScriptedServer

TURNS = [("system", "You act on a screen. " * 40), ("user", "Press the button named Save. " * 10)]
REPLY = {"thought": "It is there.", "status": "FINISH", "tool": "ui.click", "arguments": {"id": 5}}

IMPORTS = {
    "nothing": "pass",
    "our port and settings": "import starloom.llm.port, starloom.llm.settings",
    "our completion, not yet used": "import starloom.llm.completion, starloom.llm.opening",
    "bare openai client": "import openai; openai.AsyncOpenAI(api_key='x')",
    "pydantic-ai agent": (
        "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel; "
        "from pydantic_ai.providers.openai import OpenAIProvider"
    ),
}


class Step(BaseModel):
    """One step."""

    thought: str
    status: Literal["CONTINUE", "FINISH"]
    tool: str
    arguments: dict[str, int]


async def ours(base_url: str) -> Callable[[], Awaitable[object]]:
    """Return one step through our `Model`."""
    from starloom.llm.completion import ProviderModel
    from starloom.llm.openai_compatible import Connection
    from starloom.llm.port import Message
    from starloom.llm.settings import ModelProfile

    model = ProviderModel(Connection(ModelProfile(provider="endpoint", model="scripted", base_url=base_url)))
    messages = [Message(role, text) for role, text in TURNS]  # type: ignore[arg-type]
    return lambda: model.complete(messages, Step)


async def ours_followed(base_url: str) -> Callable[[], Awaitable[object]]:
    """Return one step through our `Model`, its reply streamed in about fifteen chunks and followed."""
    from starloom.llm.completion import ProviderModel
    from starloom.llm.openai_compatible import Connection
    from starloom.llm.port import Message
    from starloom.llm.settings import ModelProfile

    model = ProviderModel(Connection(ModelProfile(provider="endpoint", model="scripted", base_url=base_url)))
    messages = [Message(role, text) for role, text in TURNS]  # type: ignore[arg-type]
    return lambda: model.complete(messages, Step, follow=lambda _: None)


async def agent(base_url: str) -> Callable[[], Awaitable[object]]:
    """Return one step through pydantic-ai's agent."""
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=base_url, api_key="x"))
    asking = Agent(model, output_type=NativeOutput(Step), system_prompt=TURNS[0][1])
    return lambda: asking.run(TURNS[1][1])


async def bare(base_url: str) -> Callable[[], Awaitable[object]]:
    """Return one step through the openai client and pydantic alone."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=base_url, api_key="x")
    schema = {"name": "Step", "schema": Step.model_json_schema()}
    messages = [{"role": role, "content": text} for role, text in TURNS]

    async def step() -> object:
        response = await client.chat.completions.create(
            model="scripted",
            messages=messages,  # type: ignore[arg-type]
            response_format={"type": "json_schema", "json_schema": schema},
        )
        return Step.model_validate_json(response.choices[0].message.content or "")

    return step


async def bare_followed(base_url: str) -> Callable[[], Awaitable[object]]:
    """Return the same through the openai client's stream."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=base_url, api_key="x")
    schema = {"name": "Step", "schema": Step.model_json_schema()}
    messages = [{"role": role, "content": text} for role, text in TURNS]

    async def step() -> object:
        stream = await client.chat.completions.create(
            model="scripted",
            messages=messages,  # type: ignore[arg-type]
            response_format={"type": "json_schema", "json_schema": schema},
            stream=True,
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        return Step.model_validate_json("".join(pieces))

    return step


async def measure(base_url: str, steps: int) -> None:
    """Print the CPU milliseconds of a step, best of three rounds, for each layer."""
    layers = {
        "bare openai client": bare,
        "pydantic-ai agent": agent,
        "our layer": ours,
        "bare openai client, streamed": bare_followed,
        "our layer, followed": ours_followed,
    }
    for name, make in layers.items():
        step = await make(base_url)
        for _ in range(5):
            await step()
        rounds = []
        for _ in range(3):
            start = time.process_time()
            for _ in range(steps):
                await step()
            rounds.append((time.process_time() - start) / steps * 1000)
        print(f"{name:32} {min(rounds):6.2f} ms CPU a step")


def import_weight() -> None:
    """Print the CPU seconds, modules and memory that each import costs, best of three."""
    count = "import resource, sys, time; t=time.process_time()"
    show = "print(time.process_time()-t, len(sys.modules), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    for name, statement in IMPORTS.items():
        command = [sys.executable, "-c", f"{count}; {statement}; {show}"]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
        cpu, modules, memory = min(runs, key=lambda run: float(run[0]))
        print(f"{name:32} {float(cpu):6.2f} s CPU  {modules:>5} modules  {int(memory) / 1024:6.0f} MB")


def serve() -> None:
    """Answer until standard input ends."""
    with ScriptedServer([json.dumps(REPLY)]) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    import_weight()
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        base_url = (server.stdout.readline() if server.stdout else "").strip()
        try:
            asyncio.run(measure(base_url, options.steps))
        finally:
            if server.stdin:
                server.stdin.close()


if __name__ == "__main__":
    main()
