"""Draft a compact plan line by line: the grammar of each is made from the lines before, and each is checked at once.

Called by `agents.compact_planner`. The lines before are given to the model as the beginning of its own reply, so it
reads nothing twice.

    line n ─▶ grammar ─▶ model ─▶ checks ─ none ─▶ keep; go on while the model does, or a name of the request is unused
                ▲                   │ complaints: twice more, the mistake made impossible
                └───────────────────┤
                                    └ still ─▶ keep the best try with its complaints
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from starloom.agents.compact_checks import (
    Complaint,
    Remedy,
    complaints,
    corrected,
    devices_left_out,
    is_path_named,
    left_out,
    lines_without_result,
    on_every_device,
)
from starloom.agents.compact_examples import example_texts
from starloom.agents.compact_grammar import Bounds, Results, kind_of_result, line_grammar, line_head
from starloom.agents.compact_names import takes
from starloom.agents.compact_reading import CompactStep, read_line, texts, with_edges, written
from starloom.agents.compact_tools import MAX_STEPS, REFERRING, UNSUPPORTED, CompactTool, narrowed
from starloom.llm.port import Generated, Message

MAX_TRIES = 3
MAX_LINES_ASKED = 40  # of all drafts of one request together; a plan of ten lines with no mistake asks ten

Generate = Callable[[list[Message], str], Awaitable[Generated]]


@dataclass(frozen=True, slots=True)
class Draft:
    """What came of a request. No steps: it was refused. `is_mended`: a line was wrong, or missing, at first."""

    steps: tuple[CompactStep, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    is_mended: bool = False


@dataclass(frozen=True, slots=True)
class Drafting:
    """One request to be planned. `tools` are those that it may use, on the devices that it may mean."""

    generate: Generate
    turns: list[Message]
    tools: Sequence[CompactTool]
    request: str
    device_ids: Sequence[str]
    may_refuse: bool = True
    asked: list[int] = field(default_factory=list)  # the lines asked for so far, shared by all drafts of the request

    async def draft(self) -> Draft:
        """Return the plan, or a draft without steps where the request is refused."""
        best = await self._draft(())
        for name, word in left_out(best.steps, self.tools, self.request).items() if best.steps else ():
            kept = self._before(name, word, best.steps)
            best = _better(best, await self._draft(kept, next_tool=name))
        if best.steps:
            for device in devices_left_out(best.steps, self.request, self.device_ids):
                best = await self._with_device(best, device)
        return best

    async def _with_device(self, draft: Draft, device_id: str) -> Draft:
        """Return a plan that uses the device: all on it where it offers the tools, or else a further line on it."""
        narrow = narrowed(self.tools, [device_id])
        best = _better(draft, await replace(self, tools=narrow, may_refuse=False)._draft(()))
        if best is not draft or not (theirs := [tool for tool in narrow if tool.devices == (device_id,)]):
            return best
        return _better(draft, await replace(self, tools=theirs)._draft(draft.steps))

    def _before(self, tool_name: str, word: str, steps: Sequence[CompactStep]) -> tuple[CompactStep, ...]:
        """Return the lines that come before the one that a word of the request asks for.

        They say what stands before the word, and give what the tool must refer to.
        """
        tool = next(tool for tool in self.tools if tool.name == tool_name)
        taken = [item for item in tool.parameters if item.shape in REFERRING]
        request = self.request.casefold()
        position = request.find(word)
        count = 0
        while count < len(steps):
            said = [request.find(text.casefold()) for value in steps[count].values.values() for text in texts(value)]
            is_before = any(0 <= place < position for place in said)
            results = self._bounds(steps[:count]).results
            if not is_before and all(results.fitting(item) for item in taken):
                break
            count += 1
        return tuple(steps[:count])

    async def _draft(self, kept: tuple[CompactStep, ...], next_tool: str | None = None) -> Draft:
        """Go on after the kept lines; the next line calls `next_tool`, when one is given."""
        steps = kept
        is_mended = is_made_to_go_on = False
        dropped: list[Complaint] = []
        while len(steps) < MAX_STEPS:
            line = await self._line(steps, next_tool if len(steps) == len(kept) else None)
            if line is None:
                break
            longer = with_edges([*steps, line.step])
            unused = self._unused(longer)
            if steps and line.is_needless and not self._unused(steps):
                dropped = [item for item in line.found if item.remedy is Remedy.INVENTED]
                break
            if is_made_to_go_on and unused == self._unused(steps):
                break
            is_mended |= line.is_mended or is_made_to_go_on
            steps = longer
            if not line.goes_on and not unused:
                break
            is_made_to_go_on = not line.goes_on
        if not steps:
            return Draft()
        steps = with_edges(on_every_device(steps, self.request, self.device_ids) or steps)
        words = left_out(steps, self.tools, self.request)
        found = [Complaint(f"The request says {word!r}, but no line uses {name}.") for name, word in words.items()]
        found += [replace(item, text=f"A step was left out: {item.text}") for item in dropped]
        return Draft(steps, (*self._complaints(steps), *found), is_mended)

    async def _line(self, before: Sequence[CompactStep], tool_name: str | None) -> "_Line | None":
        """Return the next line, the best of a few tries; None: refused, or there is nothing that it could say."""
        others = frozenset(tool.name for tool in self.tools if tool_name not in (None, tool.name))
        bounds: Bounds | None = replace(self._bounds(before), banned_tools=others)
        best: _Line | None = None
        for _ in range(MAX_TRIES):
            if len(self.asked) >= MAX_LINES_ASKED:
                break
            text = await self._written(before, bounds) if bounds else UNSUPPORTED
            if bounds is None or text.strip() == UNSUPPORTED:
                break
            read = read_line(text, bounds.line, self.tools)
            step = corrected([*before, read], self.request, self.device_ids)[-1]
            found = [item for item in self._complaints([*before, step]) if item.line == step.line]
            if best is None or len(found) < len(best.found):
                best = _Line(step, found, goes_on=text.endswith("\n"), is_mended=best is not None)
            if not found or (before and best.is_needless and not self._unused(before)):
                break
            bounds = _tighter(bounds, step, found, self.tools)
        return best

    async def _written(self, before: Sequence[CompactStep], bounds: Bounds) -> str:
        """Return the line as the model writes it, with its head."""
        grammar = line_grammar(self.tools, bounds)
        if grammar is None:
            return UNSUPPORTED
        self.asked.append(bounds.line)
        head = line_head(bounds)
        start = "".join(f"{written(step)}\n" for step in before) + head
        turns = [*self.turns, Message("assistant", start)] if start else self.turns
        return head + (await self.generate(turns, grammar)).text

    def _bounds(self, before: Sequence[CompactStep]) -> Bounds:
        devices = {device for tool in self.tools for device in tool.devices}
        without = lines_without_result(before)
        return Bounds(
            line=len(before) + 1,
            request=self.request,
            device_id=devices.pop() if len(devices) == 1 else None,
            results=Results({step.line: kind_of_result(step.tool) for step in before if step.line not in without}),
            made=tuple(dict.fromkeys(place for step in before for place in step.places(made=True))),
            banned_names=frozenset(device for device in self.device_ids if not is_path_named(device, self.request)),
            may_refuse=self.may_refuse and not before,
        )

    def _complaints(self, steps: Sequence[CompactStep]) -> tuple[Complaint, ...]:
        return complaints(steps, self.request, self.device_ids, example_texts())

    def _unused(self, steps: Sequence[CompactStep]) -> list[Complaint]:
        """Return the names of the request that no line uses."""
        return [item for item in self._complaints(steps) if item.remedy is Remedy.MORE_LINES]


def _better(one: Draft, other: Draft) -> Draft:
    """Return the second plan, as mended, when less is wrong with it."""
    return replace(other, is_mended=True) if other.steps and len(other.complaints) < len(one.complaints) else one


@dataclass(frozen=True, slots=True)
class _Line:
    step: CompactStep
    found: list[Complaint]
    goes_on: bool
    is_mended: bool

    @property
    def is_needless(self) -> bool:
        """Whether the line is better left out when nothing of the request is open: it repeats or invents something."""
        return any(item.remedy in (Remedy.LEAVE_OUT, Remedy.INVENTED) for item in self.found)


def _tighter(
    bounds: Bounds, step: CompactStep, found: Sequence[Complaint], tools: Sequence[CompactTool]
) -> Bounds | None:
    """Return bounds that make the mistake impossible; None when nothing was learned from it."""
    tools_to_ban: set[str] = set()
    if any(item.remedy in (Remedy.ANOTHER_TOOL, Remedy.INVENTED, Remedy.LEAVE_OUT) for item in found):
        inputs = step.places(made=False)
        unfit = [tool.name for tool in tools if any(not takes(tool, place, is_made=False) for place in inputs)]
        tools_to_ban = {step.tool.name, *unfit}
    wrong = [item.text for item in found if item.remedy is Remedy.GIVEN_NAMES]
    names = {place for place in step.places() if any(repr(place) in text for text in wrong)}
    tighter = replace(
        bounds,
        banned_tools=bounds.banned_tools | tools_to_ban,
        banned_names=bounds.banned_names | names,
        may_refuse=False,
    )
    return tighter if tools_to_ban or names else None
