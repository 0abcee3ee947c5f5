"""What one request gave, in our words: the text, how it ended, what it used. Reads pydantic-ai's response.

Called by `openai_compatible.Connection` for every wire, whether the reply came whole or as a stream.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starloom.llm.port import Usage
from starloom.llm.replies import Finish

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

# The names under which wires count the tokens of pictures, in the parts of the input that they tell apart.
_IMAGE_TOKENS = ("image_prompt_tokens", "image_tokens", "input_image_tokens")
_FINISHES: dict[str | None, Finish] = {"length": "length", "stop": "stop", "tool_call": "stop"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply as it came: its text (or the arguments of the one output tool), how it ended, what it used.

    `usage` None: the provider did not say.
    """

    text: str
    finish: Finish
    model: str
    usage: Usage | None


def answer_of(response: "ModelResponse", model: str) -> Answer:
    """Return what the response says; `model` where it does not name one."""
    from pydantic_ai.messages import TextPart, ToolCallPart

    calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
    texts = [part.content for part in response.parts if isinstance(part, TextPart)]
    text = calls[0] if len(calls) == 1 else "\n".join(calls or texts)
    finish = _FINISHES.get(response.finish_reason, "unknown")
    return Answer(text, finish, response.model_name or model, usage_of(response.usage))


def usage_of(counted: "RequestUsage") -> Usage | None:
    """Return what a request used; None when nothing was counted. A part that is not told apart is unknown."""
    if counted.unmeasured_requests or not (counted.input_tokens or counted.output_tokens):
        return None
    details = counted.details
    images = next((details[name] for name in _IMAGE_TOKENS if name in details), None)
    return Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cached_tokens=_told(counted.cache_read_tokens, details, "cache_read_input_tokens", "cached_tokens"),
        cache_write_tokens=_told(counted.cache_write_tokens, details, "cache_creation_input_tokens"),
        reasoning_tokens=_told(counted.output_reasoning_tokens, details, "reasoning_tokens", "thoughts_tokens"),
        image_tokens=images,
    )


def _told(tokens: int, details: dict[str, int], *names: str) -> int | None:
    """Return a part's tokens; the library's zero may also mean «not said», so it is believed where a detail has it."""
    return tokens if tokens or any(name in details for name in names) else None
