"""Throws mutated frames at the three protocol cores for a while, and says what it took: `make fuzz`.

Not a test that pytest runs. The seeds are upstream's recorded frames and what our own ends say to each other, so every
state has frames that nearly fit. Each input is a short talk with fresh ends in every state; it fails when a core
raises, when one input takes longer than a second, or when the process has grown after a while of the same. The seed of
a failing input is printed, and running with it repeats it.

    python -m tests.aip.fuzz SECONDS [SEED]
"""

import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.aip.test_protocol import ALL, galaxy, pair, server

from starloom.aip.extension import Offer
from starloom.aip.messages import ClientMessageType, Command, Result, ServerMessageType

SLOWEST_S = 1.0
GROWTH_MB = 32.0
WEIGHED_EVERY_S = 60.0
LONGEST = 64 * 1024
_ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    2**70,
    "",
    "\x00",
    "\ud800",
    "x" * 5000,
    [],
    [[]],
    {},
    {"v": 1},
    {"": None},
]
_WORDS = [*(kind.value for kind in ClientMessageType), *(kind.value for kind in ServerMessageType), "ok", "error", "x"]

Frame = str | bytes


@dataclass
class Tally:
    """What was seen so far."""

    inputs: int = 0
    frames: int = 0
    slowest_s: float = 0.0
    slowest: list[Frame] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)


def seeds() -> list[Frame]:
    """Return the recorded frames, and ours with every part of the extension in them."""
    path = Path(__file__).parent / "recorded" / "frames.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [row["text"] for row in rows if row.get("text")] + list(_ours())


def _ours() -> Iterator[Frame]:
    near, far, _ = pair()
    waiting, there = galaxy()
    far.command([Command(tool_name="t", call_id="c")], session_id="s", once=True)
    far.settled(["c"])
    far.push_task("x", session_id="s", task_name="t")
    commands = far.take_frames()
    yield from commands
    for event in (event for frame in commands for event in near.receive(frame, 0.0)):
        if hasattr(event, "actions"):
            near.results(event, [Result(status="success", result="data:image/png;base64," + "A" * 400_000)])
    yield from near.take_frames()
    waiting.ask_task("x", task_id="t")
    there.presence("dev1", online=True)
    yield from (*waiting.take_frames(), *there.take_frames())


def states() -> list[Any]:
    """Return fresh ends in every state that a frame can find them in."""
    near, far, _ = pair()
    far.command([Command(tool_name="t", call_id="c")], session_id="s")
    plain_near, plain_far, _ = pair(offer=None)
    waiting, there = galaxy()
    waiting.ask_task("x", task_id="t")
    asked = server()
    asked.receive('{"type":"register","status":"ok","client_id":"d","metadata":{"platform":"linux"}}', 0.0)
    unsure, _, _ = pair(ours=Offer(caps=("resume",)), offer=ALL)
    return [near, far, plain_near, plain_far, waiting, there, server(), asked, unsure]


def mutated(seed: Frame, others: list[Frame], chance: random.Random) -> Frame:
    """Return a frame changed in one to four places, as text, as JSON or as bytes."""
    frame = seed
    for _ in range(chance.randint(1, 4)):
        frame = chance.choice(_MUTATIONS)(frame, others, chance)[:LONGEST]
    return frame


def _spliced(frame: Frame, others: list[Frame], chance: random.Random) -> Frame:
    other = chance.choice(others)
    if isinstance(frame, bytes) or isinstance(other, bytes):
        return _as_bytes(frame)[: chance.randint(0, 400)] + _as_bytes(other)[chance.randint(0, 400) :]
    return frame[: chance.randint(0, len(frame))] + other[chance.randint(0, len(other)) :]


def _bytes_changed(frame: Frame, _others: list[Frame], chance: random.Random) -> Frame:
    raw = bytearray(_as_bytes(frame))
    for _ in range(chance.randint(1, 8)):
        if raw:
            raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw) if chance.random() < 0.3 else raw.decode("utf-8", "replace")


def _value_changed(frame: Frame, _others: list[Frame], chance: random.Random) -> Frame:
    try:
        value = json.loads(frame)
    except ValueError:
        return frame
    except RecursionError:
        return frame
    places = list(_places(value))
    if places:
        holder, key = chance.choice(places)
        match chance.randrange(4):
            case 0:
                holder[key] = chance.choice(_ODD)
            case 1:
                holder[key] = chance.choice(_WORDS)
            case 2:
                holder[key] = [holder[key]] * chance.randint(0, 40)
            case _:
                del holder[key]
    return json.dumps(value)


def _nested(frame: Frame, _others: list[Frame], chance: random.Random) -> Frame:
    depth, name = chance.choice((10, 200, 5_000)), chance.choice(("result", "metadata", "x_starloom", "action_results"))
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
    deep = f'"{name}":{opening * depth}1{closing * depth}'
    text = frame if isinstance(frame, str) else frame.decode("utf-8", "replace")
    return f"{text.rstrip()[:-1]},{deep}}}"


def _doubled(frame: Frame, _others: list[Frame], chance: random.Random) -> Frame:
    return frame * chance.randint(2, 5)


_MUTATIONS: list[Callable[[Frame, list[Frame], random.Random], Frame]] = [
    _value_changed, _value_changed, _value_changed, _bytes_changed, _spliced, _nested, _doubled,
]  # fmt: skip


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _as_bytes(frame: Frame) -> bytes:
    return frame if isinstance(frame, bytes) else frame.encode("utf-8", "surrogatepass")


def talk(frames: list[Frame], tally: Tally) -> None:
    """Let every end hear the frames; nothing may raise, and what they answer is bounded."""
    began = time.process_time()
    for end in states():
        for frame in frames:
            end.receive(frame, 1.0)
        answers = end.take_frames()
        assert sum(map(len, answers)) < 20_000 + 2 * sum(map(len, frames)), "the answers grow out of proportion"
        end.deadline()
        end.expire(2.0)
    took_s = time.process_time() - began
    tally.inputs += 1
    tally.frames += len(frames)
    if took_s > tally.slowest_s:
        tally.slowest_s, tally.slowest = took_s, frames
    assert took_s < SLOWEST_S, f"one input took {took_s:.2f} s"


def memory_mb() -> float:
    """Return how much memory the process has in use."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(limit_s: float, seed: int | None) -> int:
    """Run until the time is over; return 1 after a failure."""
    others, tally = seeds(), Tally()
    once = seed is not None
    first = seed if seed is not None else random.SystemRandom().randrange(2**48)
    began = time.monotonic()
    until = began + limit_s
    while time.monotonic() < until and not (once and tally.inputs):
        number = first + tally.inputs
        chance = random.Random(number)
        frames = [mutated(chance.choice(others), others, chance) for _ in range(chance.randint(1, 8))]
        try:
            talk(frames, tally)
        except Exception:
            print(f"The input of seed {number} failed; its frames: {[str(frame[:200]) for frame in frames]}")
            raise
        if time.monotonic() > began + WEIGHED_EVERY_S * (len(tally.memory_mb) + 1):
            tally.memory_mb.append(memory_mb())
    weights = [*tally.memory_mb, memory_mb()]
    slow = sum(map(len, tally.slowest))
    print(f"{tally.inputs} inputs, {tally.frames} frames into nine ends each, in {limit_s:g} s; first seed {first}.")
    print(f"Memory in MB, once a minute: {', '.join(f'{weight:.1f}' for weight in weights)}.")
    print(f"Slowest input: {tally.slowest_s * 1000:.1f} ms for {len(tally.slowest)} frames of {slow} signs in all.")
    return int(weights[-1] - weights[0] > GROWTH_MB)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
