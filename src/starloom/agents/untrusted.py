"""Everything read from devices, on its way into a prompt: fenced, and looked at for attempts to give orders.

A finding never changes the text and never stops it: it raises what the policy asks about, from then on. One per agent
and goal. Called by the collect, prompt and remember parts.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from starloom.agents.ports import Fence

Detector: TypeAlias = Callable[[str], Sequence[str]]
"""Text → the names of the kinds of injection that it looks like."""


class UntrustedText:
    """Shows texts to a model as data and remembers what looked like an order in them."""

    def __init__(self, fence: Fence, detect: Detector) -> None:
        self._fence = fence
        self._detect = detect
        self._suspicions: dict[str, None] = {}

    def show(self, text: str, origin: str) -> str:
        """Return the text fenced, its origin named."""
        self._suspicions.update(dict.fromkeys(self._detect(text)))
        return self._fence(text, origin)

    @property
    def suspicions(self) -> tuple[str, ...]:
        """The names of all detectors that have fired, each once, in order."""
        return tuple(self._suspicions)
