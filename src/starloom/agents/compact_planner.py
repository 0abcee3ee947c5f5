"""The planner for small models: a request and live tools in, a checked draft out, by grammar-bound lines.

Made by `session` when the role's model is the embedded one; called by `agents.constellation_agent` through `Planner`.
How a plan comes about is told in `agents.compact_drafting`; what is still wrong in it is in the draft's warnings.
"""

from collections.abc import Sequence
from dataclasses import replace

from starloom.agents.compact_checks import asks_for_a_tool, devices_meant
from starloom.agents.compact_drafting import Draft, Drafting
from starloom.agents.compact_examples import example_turns
from starloom.agents.compact_reading import CompactStep, plain
from starloom.agents.compact_tools import CompactTool, compact_tools, narrowed, shortlisted, system_prompt
from starloom.agents.plans import DeviceProfile, PlanDraft, PlannedStep
from starloom.llm.port import Generated, GrammarModel, Message, Usage, total_usage

MAX_LINE_TOKENS = 300
MAX_REQUEST_BYTES = 6000  # about 2,000 tokens, half of the embedded model's context
MAX_TOOLS_BYTES = 5000
MAX_WARNINGS = 8


class CompactPlanner:
    """Drafts plans with a model that only has to choose tools, devices and names."""

    def __init__(self, model: GrammarModel, *, max_line_tokens: int = MAX_LINE_TOKENS) -> None:
        self._model = model
        self._max_line_tokens = max_line_tokens

    async def plan(self, request: str, devices: Sequence[DeviceProfile]) -> PlanDraft:
        """Return a draft whose steps all name a tool; what the checks still find is in its warnings."""
        asked = " ".join(request.split())
        tools = shortlisted(compact_tools(devices), asked, limit_bytes=MAX_TOOLS_BYTES)
        if reason := _not_to_be_asked(asked, tools, devices):
            return PlanDraft((), self._model.name, Usage(requests=0, cost=0.0), refusal=reason)
        device_ids = [device.device_id for device in devices]
        turns = [*prefix(tools, devices), Message("user", asked)]
        usages: list[Usage] = []

        async def generate(messages: list[Message], grammar: str) -> Generated:
            generated = await self._model.generate(messages, grammar, max_tokens=self._max_line_tokens)
            usages.append(generated.usage)
            return generated

        usable = narrowed(tools, devices_meant(asked, device_ids))
        drafting = Drafting(generate, turns, usable, asked, device_ids)
        draft = await drafting.draft()
        if not draft.steps and asks_for_a_tool(usable, asked):
            second = await replace(drafting, may_refuse=False).draft()
            draft = replace(second, is_mended=True) if not second.complaints else draft
        return self._drafted(draft, total_usage(usages))

    async def warm(self, devices: Sequence[DeviceProfile]) -> Usage:
        """Have the model read the stable turns ahead, so that the first request need not wait for them.

        Worth calling in the background whenever the connected devices' tools have changed.
        """
        tools = shortlisted(compact_tools(devices), "", limit_bytes=MAX_TOOLS_BYTES)
        turns = [*prefix(tools, devices), Message("user", ".")]
        return (await self._model.generate(turns, 'root ::= "."', max_tokens=4)).usage

    def _drafted(self, draft: Draft, usage: Usage) -> PlanDraft:
        if not draft.steps:
            return PlanDraft((), self._model.name, usage, refusal=_REFUSAL)
        warnings = tuple(item.text for item in draft.complaints[:MAX_WARNINGS])
        if more := len(draft.complaints) - len(warnings):
            warnings = (*warnings, f"And {more} more.")
        if draft.is_mended and not warnings:
            warnings = (_MENDED,)
        return PlanDraft(planned_steps(draft.steps), self._model.name, usage, warnings)


_MENDED = "The first draft had a mistake and was mended; look the plan over before it runs."
_REFUSAL = (
    "None of the connected devices' tools can do this, as far as the embedded planner sees. "
    "Say it in smaller steps, connect a device that can, or choose a larger model with STARLOOM_MODEL."
)


def prefix(tools: Sequence[CompactTool], devices: Sequence[DeviceProfile]) -> list[Message]:
    """Return the turns that stay the same from request to request."""
    return [Message("system", system_prompt(tools, devices)), *example_turns(tools, [d.device_id for d in devices])]


def planned_steps(steps: Sequence[CompactStep]) -> tuple[PlannedStep, ...]:
    """Return the steps as a draft's, with ids, names and references in the constellation's notation."""
    ids = {step.line: f"s{step.line}" for step in steps}
    planned = []
    for step in steps:
        arguments = {name: plain(value, ids) for name, value in step.values.items()}
        about = ", ".join(step.places(made=True) or step.places()) or next(
            (str(value) for value in step.values.values() if isinstance(value, str)), ""
        )
        planned.append(
            PlannedStep(
                step_id=ids[step.line],
                name=f"{step.tool.name} {about}".strip(),
                description=f"{step.tool.summary} on {step.device_id}: {about}" if about else step.tool.summary,
                device_id=step.device_id,
                tool=step.tool.name,
                arguments=arguments,
                depends_on=tuple(ids[line] for line in step.after),
            )
        )
    return tuple(planned)


def _not_to_be_asked(asked: str, tools: Sequence[CompactTool], devices: Sequence[DeviceProfile]) -> str | None:
    """Return why the model need not be asked at all; None: it must be."""
    if not asked:
        return "The request is empty. Say what should be done."
    if not devices:
        return "No device is connected. Start one with: starloom up"
    if not tools:
        return "The connected devices offer no tool that the embedded planner can use. Choose a larger model."
    size = len(asked.encode())
    if size > MAX_REQUEST_BYTES:
        return (
            f"The request has {size:,} bytes, and the embedded planner reads {MAX_REQUEST_BYTES:,} at most. "
            "Say it shorter, put the long text into a file and name that, or choose a larger model."
        )
    return None
