"""Notices that an agent goes in circles: the same actions proposed on the same screen again and again. Pure.

Called by the device agent between thinking and acting. Source: device-agents.md, Replies and actions.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

from starloom.agents.replies import ActionCommandInfo


class RepeatWatch:
    """Counts proposals. A change that a different action made starts all other counts anew."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def propose(self, actions: Sequence[ActionCommandInfo], screen: str) -> int:
        """Return how often exactly these actions were proposed on exactly this screen, this time included.

        A screen is given by a digest, here and in `changed`: what an agent saw before a restart is known by no more.
        """
        key = _key(actions, screen)
        self._counts[key] += 1
        return self._counts[key]

    def changed(self, actions: Sequence[ActionCommandInfo], screen: str) -> None:
        """Note that these actions changed something: what was tried before may now have another outcome."""
        key = _key(actions, screen)
        self._counts = Counter({key: self._counts[key]})


def _key(actions: Sequence[ActionCommandInfo], screen: str) -> str:
    text = json.dumps([[action.tool, action.arguments] for action in actions], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(f"{text}\n{screen}".encode()).hexdigest()
