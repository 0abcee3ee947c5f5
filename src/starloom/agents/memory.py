"""An agent's private memory: what each of its steps saw, decided and got, windowed to a budget of tokens.

Written in the MEMORY_UPDATE phase, read when the next prompt is made. Sharing between agents is the blackboard's.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from starloom.processing.dispatch import Json

_CHARACTERS_PER_TOKEN = 4
_ASCII = 128


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text costs: a quarter of its ASCII characters, each other character whole.

    Ours: good enough to keep a budget with any tokenizer; it errs on the high side for European languages.
    """
    wide = sum(1 for character in text if ord(character) >= _ASCII)
    return wide + (len(text) - wide + _CHARACTERS_PER_TOKEN - 1) // _CHARACTERS_PER_TOKEN


def clip(text: str, budget_tokens: int) -> str:
    """Return the text, or its beginning and end around a note of how much was left out; about within the budget."""
    if estimate_tokens(text) <= budget_tokens:
        return text
    keep = max(int(len(text) * budget_tokens / estimate_tokens(text)), 20)
    head = keep * 2 // 3
    return f"{text[:head]}\n[… {len(text) - keep} characters left out …]\n{text[len(text) - (keep - head) :]}"


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One step as the agent remembers it: its own reply, and what came of it (already fenced for prompts)."""

    step: int
    reply: str
    outcome: str
    status: str
    actions: tuple[dict[str, Json], ...] = field(default_factory=tuple)
    succeeded: bool = True

    def to_dict(self) -> dict[str, Json]:
        """Return the item as JSON values."""
        return asdict(self) | {"actions": list(self.actions)}

    @property
    def tokens(self) -> int:
        """About what it costs to put this item into a prompt."""
        return estimate_tokens(self.reply) + estimate_tokens(self.outcome)


class Memory:
    """Items in the order in which they happened."""

    def __init__(self) -> None:
        self._items: list[MemoryItem] = []
        self._first = 0  # where the window begins

    def add_memory_item(self, item: MemoryItem) -> None:
        """Remember one more step."""
        self._items.append(item)

    def get_latest_item(self) -> MemoryItem | None:
        """Return the newest item; None when there is none."""
        return self._items[-1] if self._items else None

    def window(self, budget_tokens: int) -> tuple[MemoryItem, ...]:
        """Return the newest items that fit the budget together, oldest first; the newest always.

        Whoever no longer fits is left out from now on, and with it as many as half the budget asks for: so the window
        begins at the same item for many steps, and a provider can cache the prompt up to its end.
        """
        held = self._items[self._first :]
        left = sum(item.tokens for item in held)
        if left > budget_tokens:
            while len(held) > 1 and left > budget_tokens // 2:
                left -= held.pop(0).tokens
            self._first = len(self._items) - len(held)
        return tuple(held)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._first = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[MemoryItem]:
        return iter(tuple(self._items))
