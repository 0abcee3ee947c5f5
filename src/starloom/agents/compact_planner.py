"""The planner for small models: a request and live tools in, a checked draft out, by one or two grammar-bound replies.

Made by `session` when the role's model is the embedded one; called by `agents.constellation_agent` through `Planner`.

    request ─▶ reply (grammar) ─▶ steps ─▶ edges ─▶ checks ─ none ─▶ draft
                    ▲                               │ complaints: again, twice at most, from the first wrong line on,
                    └───────────────────────────────┤ and the grammar makes the mistake impossible
                                                    └ still ─▶ draft with warnings, for a person to edit
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starloom.agents.compact_checks import Complaint, bounds_after, complaints, corrected, devices_meant
from starloom.agents.compact_examples import example_texts, example_turns
from starloom.agents.compact_grammar import (
    UNSUPPORTED,
    Bounds,
    CompactTool,
    compact_tools,
    grammar,
    narrowed,
    system_prompt,
)
from starloom.agents.compact_reading import CompactStep, plain, read_plan, with_edges
from starloom.agents.plans import DeviceProfile, PlanDraft, PlannedStep
from starloom.llm.port import Generated, GrammarModel, Message, Usage, total_usage

MAX_TOKENS = 400
MAX_SECOND_TRIES = 2


class CompactPlanner:
    """Drafts plans with a model that only has to choose tools, devices and names."""

    def __init__(self, model: GrammarModel, *, max_tokens: int = MAX_TOKENS) -> None:
        self._model = model
        self._max_tokens = max_tokens

    async def plan(self, request: str, devices: Sequence[DeviceProfile]) -> PlanDraft:
        """Return a draft whose steps all name a tool; what the checks still find is in its warnings."""
        tools = compact_tools(devices)
        if not tools:
            return PlanDraft((), self._model.name, refusal=_nothing_offered(devices))
        device_ids = [device.device_id for device in devices]
        turns = [*prefix(tools, devices), Message("user", " ".join(request.split()))]
        attempts = [await self._attempt(turns, tools, request, device_ids)]
        bounds: Bounds | None = None
        while len(attempts) <= MAX_SECOND_TRIES and attempts[-1].complaints:
            last = attempts[-1]
            said = " ".join(item.text for item in last.complaints)
            again = [
                *turns,
                Message("assistant", last.generated.text),
                Message("user", f"{said} Write the plan again for: {request}"),
            ]
            bounds = bounds_after(last.complaints, last.steps, last.generated.text, request, tools, bounds)
            attempts.append(await self._attempt(again, tools, request, device_ids, bounds))
        plans = [attempt for attempt in attempts if not attempt.is_refusal]
        chosen = min(reversed(plans), key=lambda attempt: len(attempt.complaints)) if plans else attempts[0]
        return self._draft(attempts[0] if attempts[0].is_refusal else chosen, attempts)

    async def warm(self, devices: Sequence[DeviceProfile]) -> Usage:
        """Have the model read the stable turns ahead, so that the first request need not wait for them.

        Worth calling in the background whenever the connected devices' tools have changed.
        """
        turns = [*prefix(compact_tools(devices), devices), Message("user", ".")]
        return (await self._model.generate(turns, 'root ::= "."', max_tokens=4)).usage

    async def _attempt(
        self,
        turns: list[Message],
        tools: Sequence[CompactTool],
        request: str,
        device_ids: Sequence[str],
        bounds: Bounds | None = None,
    ) -> "_Attempt":
        usable = narrowed(tools, devices_meant(request, device_ids))
        generated = await self._model.generate(turns, grammar(usable, bounds), max_tokens=self._max_tokens)
        if generated.text.strip() == UNSUPPORTED:
            return _Attempt(generated, (), ())
        steps = with_edges(corrected(read_plan(generated.text, tools), request, device_ids))
        return _Attempt(generated, steps, complaints(steps, request, device_ids, example_texts()))

    def _draft(self, chosen: "_Attempt", attempts: Sequence["_Attempt"]) -> PlanDraft:
        usage = total_usage([attempt.generated.usage for attempt in attempts])
        if chosen.is_refusal:
            return PlanDraft((), chosen.generated.model, usage, refusal=_REFUSAL)
        warnings = tuple(item.text for item in chosen.complaints)
        if chosen is not attempts[0] and not warnings:
            warnings = (_MENDED,)
        return PlanDraft(planned_steps(chosen.steps), chosen.generated.model, usage, warnings)


@dataclass(frozen=True, slots=True)
class _Attempt:
    generated: Generated
    steps: tuple[CompactStep, ...]
    complaints: tuple[Complaint, ...]

    @property
    def is_refusal(self) -> bool:
        return not self.steps


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


def _nothing_offered(devices: Sequence[DeviceProfile]) -> str:
    if not devices:
        return "No device is connected. Start one with: starloom up"
    return "The connected devices offer no tool that the embedded planner can use. Choose a larger model."
