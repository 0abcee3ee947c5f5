"""LLM_INTERACTION: ask the model for a reply in the role's shape and hold it to what the device offers.

What a schema cannot say (an unknown tool, arguments that do not fit, CONTINUE without an action) is a repair turn that
quotes the fault in one line; their number is bounded. A reply on record is taken from there. Used by every agent that
thinks.
"""

import json
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pydantic import ValidationError

from starloom.agents.ports import Recorder
from starloom.agents.record import Responded, Spent
from starloom.agents.replies import AgentReply
from starloom.agents.resumption import AgentPast, PastStep
from starloom.errors import ModelError
from starloom.llm.port import Message, Model, Reply, Usage, total_usage

R = TypeVar("R", bound=AgentReply)


class Thinker(Generic[R]):
    """Asks, checks, asks again.

    Args:
        problems: what is wrong with a reply that fits the schema; each a line that starts with the field at fault.
    """

    def __init__(
        self,
        model: Model,
        schema: type[R],
        recorder: Recorder,
        *,
        agent: str,
        role: str,
        most_repairs: int,
        reply_tokens: int,
        past: AgentPast | None = None,
    ) -> None:
        self._model = model
        self._schema = schema
        self._record = recorder
        self._agent = agent
        self._role = role
        self._most_repairs = most_repairs
        self._reply_tokens = reply_tokens
        self._past = past or AgentPast()

    async def ask(
        self,
        messages: Sequence[Message],
        step: int,
        problems: Callable[[R], list[str]],
        *,
        screen: str = "",
        suspicions: tuple[str, ...] = (),
    ) -> tuple[R, Usage]:
        """Return a usable reply, and what all the calls for it used.

        Args:
            messages: the prompt.
            step: the step's number, unique for this agent.
            problems: as above.
            screen: a digest of what the agent saw, for the record.
            suspicions: what looked like an order so far, for the record.

        Raises:
            ModelError: the model cannot be had, or gave nothing usable after the repair turns.
        """
        past = self._past.step(self._agent, step)
        if past is not None:
            return self._recalled(past), total_usage(past.usage)
        turns = list(messages)
        used: list[Usage] = []
        for _ in range(self._most_repairs + 1):
            reply: Reply[R] = await self._model.complete(turns, self._schema, max_tokens=self._reply_tokens)
            used.append(reply.usage)
            await self._record(Spent(self._role, reply.model, reply.usage))
            faults = problems(reply.value)
            if not faults:
                response = reply.value.model_dump(mode="json")
                await self._record(Responded(self._agent, step, response, screen, suspicions))
                return reply.value, total_usage(used)
            turns = [
                *turns,
                Message("assistant", reply_text(reply.value)),
                Message("user", "Your reply cannot be used. " + " ".join(faults) + " Reply again, complete."),
            ]
        raise ModelError(
            f"The model {self._model.name!r} gave no usable reply in {self._most_repairs + 1} tries; "
            f"the last fault: {faults[0]}"
        )

    def _recalled(self, past: PastStep) -> R:
        try:
            return self._schema.model_validate(past.response)
        except ValidationError as error:
            raise ModelError(
                "The agent cannot go on where it was: a reply of it on record does not fit this version of Starloom."
            ) from error


def reply_text(reply: AgentReply) -> str:
    """Return a reply as the compact JSON that stands for it in later prompts."""
    return json.dumps(reply.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
