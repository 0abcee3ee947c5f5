"""Everything read from devices, on its way into a prompt: fenced, and looked at for attempts to give orders.

A finding never changes the text and never stops it: it raises what the policy asks about, from then on. One per agent
and goal. Called by the collect, prompt and remember parts.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from starloom.agents.ports import Fence
from starloom.safety.detectors import detect
from starloom.safety.provenance import Origin, Provenance

Detector: TypeAlias = Callable[[str], Sequence[str]]
"""Text → the names of the kinds of injection that it looks like."""


def suspicions_in(text: str) -> tuple[str, ...]:
    """Return the names of the house's own detectors that fire on a text."""
    return tuple(dict.fromkeys(finding.detector for finding in detect(text)))


class UntrustedText:
    """Shows texts to a model as data and remembers what looked like an order in them."""

    def __init__(self, fence: Fence, detector: Detector) -> None:
        self._fence = fence
        self._detect = detector
        self._suspicions: dict[str, None] = {}

    def show(self, text: str, provenance: Provenance) -> str:
        """Return the text fenced, its origin named."""
        self._suspicions.update(dict.fromkeys(self._detect(text)))
        return self._fence(text, provenance)

    def show_tool(self, text: str, source: str) -> str:
        """Return what a tool gave, fenced; `source` says which."""
        return self.show(text, Provenance(Origin.TOOL, source))

    def suspect(self, suspicions: Sequence[str]) -> None:
        """Take over what was suspected before a restart, of texts that are not kept."""
        self._suspicions.update(dict.fromkeys(suspicions))

    @property
    def suspicions(self) -> tuple[str, ...]:
        """The names of all detectors that have fired, each once, in order."""
        return tuple(self._suspicions)
