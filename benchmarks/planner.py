"""How well the embedded model plans: the request files with the real weights, judged strictly; prints a table.

Run: python -m benchmarks.planner [FILE] [--show all]. Needs the weights (starloom model install).
A plan counts when its tools, devices, arguments and derived edges are exactly those of one accepted plan, in any order
of independent lines; a request that no tool can do counts when it is refused. Ends with exit code 1 when a file's
score is below its floor, which is what was measured last.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
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
FLOORS = {"tuned": 38, "held-out": 25, "everyday-tuned": 22, "everyday-held-out": 20}
FILES = tuple(FLOORS)

_SCHEMAS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "reference": {"type": "object", "x-reference": True},
    "references": {"type": "array", "items": {"type": "object", "x-reference": True}},
}


class Show(StrEnum):
    """Which plans are printed. Of held-out files none ever is: who has seen them tunes with them."""

    NONE = "none"
    WRONG = "wrong"
    ALL = "all"
    TRACE = "trace"  # and every reply of the model


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


async def judge(model: EmbeddedModel, cases: list[Case], show: Show) -> list[Judged]:
    """Plan every case in turn; print what is to be seen of each."""
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
        if show is Show.TRACE:
            print("".join("      > " + reply.replace("\n", "\n        ") + "\n" for reply in heard.replies), end="")
        if show in (Show.ALL, Show.TRACE) or (show is Show.WRONG and not judged[-1].is_right):
            _print_case(judged[-1])
    return judged


def _print_case(item: Judged) -> None:
    used, verdict = item.draft.usage, "right" if item.is_right else "WRONG"
    print(
        f"  {verdict} {item.seconds:5.1f} s, {used.requests} lines asked for, {_tokens_read(item)} tokens read, "
        f"{used.output_tokens} written  {item.case.ask[:200]}",
        flush=True,
    )
    if not item.is_right:
        for step in item.draft.steps:
            print(f"        {step.step_id} {step.device_id}.{step.tool} {step.arguments} after {step.depends_on}")
        print(f"        {item.draft.refusal or ''}{' '.join(item.draft.warnings)}", flush=True)


def _tokens_read(item: Judged) -> int:
    return item.draft.usage.input_tokens - (item.draft.usage.cached_tokens or 0)


def summary(judged: list[Judged]) -> str:
    """Return a set's score, and what its plans took on average: of those after the first, which may read the prefix."""
    later = judged[1:] or judged
    wrong = [item for item in judged if not item.is_right]
    warned = sum(bool(item.draft.warnings) for item in wrong)
    return (
        f"{len(judged) - len(wrong)}/{len(judged)} right, {warned} of the wrong ones with a warning; "
        f"first {judged[0].seconds:.1f} s, then {fmean(item.seconds for item in later):.1f} s, "
        f"{fmean(_tokens_read(item) for item in later):.0f} tokens read, "
        f"{fmean(item.draft.usage.output_tokens for item in later):.0f} written"
    )


async def main() -> int:
    """Print one line a set, what is to be seen of its plans, and the sums; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", default="all", choices=[*FILES, "all"])
    parser.add_argument("--only", default="", help="a part of a set's name")
    parser.add_argument("--ask", default="", help="a part of the requests to plan")
    parser.add_argument(
        "--show", default="wrong", choices=list(Show), help="the plans to print; of held-out files: none"
    )
    options = parser.parse_args()
    model = open_embedded(parse_model("embedded"))
    is_below = False
    is_part = bool(options.only or options.ask)
    for file in FILES if options.file == "all" else [options.file]:
        right = total = 0
        show = Show.NONE if "held-out" in file else Show(options.show)
        for name, every in load_cases(file).items():
            cases = [case for case in every if options.only in name and options.ask in case.ask]
            if not cases:
                continue
            judged = await judge(model, cases, show)
            print(f"{file}: {name}: {summary(judged)}", flush=True)
            right, total = right + sum(item.is_right for item in judged), total + len(judged)
        print(f"{file}: {right}/{total}" + ("" if is_part else f" (floor {FLOORS[file]})"), flush=True)
        is_below |= not is_part and right < FLOORS[file]
    await model.close()
    return int(is_below)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
