"""How well the embedded model plans: the request files with the real weights, judged strictly; prints a table.

Run: python -m benchmarks.planner [FILE] [--verbose] [--trace]. Needs the weights (starloom model install).
A plan counts when its tools, devices, arguments and derived edges are exactly those of one accepted plan, in any order
of independent lines; a request that no tool can do counts when it is refused. Ends with exit code 1 when a file's
score is below its floor, which is what was measured last.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from starloom.agents.compact_planner import CompactPlanner, planned_steps
from starloom.agents.compact_reading import read_plan, with_edges
from starloom.agents.compact_tools import CompactTool, compact_tools
from starloom.agents.plans import DeviceProfile, PlanDraft, PlannedStep, ToolProfile
from starloom.errors import ModelError
from starloom.llm.embedded import EmbeddedModel
from starloom.llm.opening import open_embedded
from starloom.llm.port import Follow, Generated, Message
from starloom.llm.settings import parse_model
from starloom.safety.policy import Risk

FOLDER = Path(__file__).parents[1] / "tests" / "llm" / "requests"
FLOORS = {"tuned": 34, "held-out": 24, "everyday-tuned": 0, "everyday-held-out": 0}
FILES = tuple(FLOORS)

_SCHEMAS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "reference": {"type": "object", "x-reference": True},
    "references": {"type": "array", "items": {"type": "object", "x-reference": True}},
}


@dataclass(frozen=True)
class Case:
    """A request, the devices it meets, and the plans that are right; none: it must be refused."""

    ask: str
    devices: tuple[DeviceProfile, ...]
    plans: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """A case, what came of it, how long it took, and every reply of the model on the way."""

    case: Case
    draft: PlanDraft
    is_right: bool
    seconds: float
    replies: tuple[str, ...]


class Overheard:
    """A model that remembers what it replied."""

    def __init__(self, model: EmbeddedModel) -> None:
        self._model = model
        self.name = model.name
        self.replies: list[str] = []

    async def generate(
        self, messages: list[Message], grammar: str, *, max_tokens: int = 512, follow: Follow | None = None
    ) -> Generated:
        """Pass the request on."""
        generated = await self._model.generate(messages, grammar, max_tokens=max_tokens, follow=follow)
        start = messages[-1].text if messages[-1].role == "assistant" else ""
        self.replies.append(f"{start}|{generated.text}")
        return generated


def load_tools(name: str) -> tuple[ToolProfile, ...]:
    """Return the tools of a file as a device would offer them."""
    found = []
    for tool, details in yaml.safe_load((FOLDER / name).read_text(encoding="utf-8")).items():
        arguments = details["arguments"]
        schema = {
            "type": "object",
            "properties": {key: _schema(kind) for key, kind in arguments.items()},
            "required": [key for key, kind in arguments.items() if isinstance(kind, list) or not kind.endswith("?")],
        }
        places = tuple(details.get("places", ()))
        found.append(ToolProfile(tool, details["about"], schema, Risk(details["risk"]), places))
    return tuple(found)


def _schema(kind: str | list[str]) -> dict[str, Any]:
    return {"type": "string", "enum": kind} if isinstance(kind, list) else _SCHEMAS[kind.rstrip("?")]


def load_cases(file: str) -> dict[str, list[Case]]:
    """Return the cases of a file by the name of their set."""
    found: dict[str, list[Case]] = {}
    for part in yaml.safe_load((FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))["sets"]:
        named = part["devices"]
        offered = named if isinstance(named, dict) else dict.fromkeys(named, part.get("tools"))
        devices = tuple(DeviceProfile(name, "linux", load_tools(tools)) for name, tools in offered.items())
        found[part["name"]] = [
            Case(item["ask"], devices, () if item.get("refuse") else (item["plan"], *item.get("accept", ())))
            for item in part["requests"]
        ]
    return found


def is_right(case: Case, draft: PlanDraft) -> bool:
    """Return whether the draft equals one of the accepted plans, or refuses what cannot be done."""
    if not case.plans or draft.refusal:
        return not case.plans and draft.refusal is not None
    tools = compact_tools(case.devices)
    return shape(draft.steps) in [shape(_steps(plan, tools)) for plan in case.plans]


def _steps(plan: str, tools: tuple[CompactTool, ...]) -> tuple[PlannedStep, ...]:
    return planned_steps(with_edges(read_plan(plan, tools)))


def shape(steps: tuple[PlannedStep, ...]) -> tuple[str, ...]:
    """Return the plan as a multiset of calls with their inputs written out, so that order and ids do not matter."""
    written: dict[str, str] = {}
    for step in steps:
        text = f"{step.device_id}.{step.tool}({sorted(step.arguments.items())})"
        for step_id, other in written.items():
            text = text.replace(f"tasks.{step_id}.", f"<{other}>.")
        after = sorted(written[step_id] for step_id in step.depends_on)
        written[step.step_id] = f"{text} after {after}"
    return tuple(sorted(written.values()))


async def judge(model: EmbeddedModel, cases: list[Case], *, verbose: bool, trace: bool) -> list[Judged]:
    """Plan every case in turn; print the wrong plans, or all."""
    judged = []
    for case in cases:
        heard = Overheard(model)
        planner = CompactPlanner(heard)
        start = time.monotonic()
        try:
            draft = await planner.plan(case.ask, case.devices)
        except ModelError as error:
            draft = PlanDraft((), model.name, warnings=(error.message,))
        judged.append(Judged(case, draft, is_right(case, draft), time.monotonic() - start, tuple(heard.replies)))
        _show(judged[-1], verbose=verbose, trace=trace)
    return judged


def _show(item: Judged, *, verbose: bool, trace: bool) -> None:
    if trace:
        for reply in item.replies:
            print("      > " + reply.replace("\n", "\n        "), flush=True)
    if item.is_right and not verbose:
        return
    used = item.draft.usage
    print(
        f"  {'right' if item.is_right else 'WRONG'} {item.seconds:5.1f} s, {used.requests} requests, "
        f"{used.input_tokens - (used.cached_tokens or 0)} tokens read, {used.output_tokens} written  {item.case.ask[:200]}"
    )
    if not item.is_right:
        for step in item.draft.steps:
            print(f"        {step.step_id} {step.device_id}.{step.tool} {step.arguments} after {step.depends_on}")
        print(f"        {item.draft.refusal or ''}{' '.join(item.draft.warnings)}")


async def main() -> int:
    """Print one line a set, the wrong plans in full, and the sums; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", default="all", choices=[*FILES, "all"])
    parser.add_argument("--only", default="", help="a part of a set's name")
    parser.add_argument("--ask", default="", help="a part of the requests to plan")
    parser.add_argument("--verbose", action="store_true", help="print the right plans' requests too")
    parser.add_argument("--trace", action="store_true", help="print every reply of the model")
    options = parser.parse_args()
    model = open_embedded(parse_model("embedded"))
    is_below = False
    is_part = bool(options.only or options.ask)
    for file in FILES if options.file == "all" else [options.file]:
        right = total = 0
        for name, cases in load_cases(file).items():
            if options.only not in name:
                continue
            cases = [case for case in cases if options.ask in case.ask]
            if not cases:
                continue
            judged = await judge(model, cases, verbose=options.verbose, trace=options.trace)
            good = sum(item.is_right for item in judged)
            flagged = sum(bool(item.draft.warnings) for item in judged if not item.is_right)
            asked_twice = sum(item.draft.usage.requests > 1 for item in judged)
            mean = sum(item.seconds for item in judged[1:]) / max(1, len(judged) - 1)
            print(
                f"{file}: {name}: {good}/{len(judged)} right, {flagged} of the wrong ones flagged, "
                f"{asked_twice} asked twice; first {judged[0].seconds:.1f} s, then {mean:.1f} s on average"
            )
            right, total = right + good, total + len(judged)
        print(f"{file}: {right}/{total}" + ("" if is_part else f" (floor {FLOORS[file]})"))
        is_below |= not is_part and right < FLOORS[file]
    await model.close()
    return int(is_below)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
