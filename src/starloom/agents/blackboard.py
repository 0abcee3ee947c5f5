"""The blackboard: what all agents of a session can read, in four columns, each entry with where it came from.

    questions      what was asked of the user, with the answer
    requests       the user's earlier requests
    trajectories   what other agents have done
    screenshots    pictures that a model chose to keep, with its reason

What the user said goes into prompts as it is; everything else is fenced. Written by agents, read by their prompts.
"""

from dataclasses import dataclass
from enum import StrEnum

from starloom.agents.memory import clip, estimate_tokens
from starloom.agents.ports import Fence
from starloom.llm.port import Image
from starloom.safety.provenance import Origin, Provenance


class Column(StrEnum):
    """The four columns."""

    QUESTIONS = "questions"
    REQUESTS = "requests"
    TRAJECTORIES = "trajectories"
    SCREENSHOTS = "screenshots"


_USER = Provenance(Origin.USER)
_HEADINGS = {
    Column.QUESTIONS: "Questions and answers",
    Column.REQUESTS: "Earlier requests",
    Column.TRAJECTORIES: "Done so far by others",
    Column.SCREENSHOTS: "Kept pictures",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One note; its label names the agent, tool or screen, `image` is set for a kept picture."""

    text: str
    provenance: Provenance
    image: Image | None = None


class Blackboard:
    """Notes of one session. Bounded: the oldest of a column goes when it is full."""

    def __init__(self, most_entries: int = 200) -> None:
        self._most = most_entries
        self._columns: dict[Column, list[Entry]] = {column: [] for column in Column}

    def add(self, column: Column, entry: Entry) -> None:
        """Put an entry at the end of a column."""
        entries = self._columns[column]
        entries.append(entry)
        del entries[: max(len(entries) - self._most, 0)]

    def add_questions(self, question: str, answer: str) -> None:
        """Note what was asked, by whichever agent, and what the user answered."""
        self.add(Column.QUESTIONS, Entry(f"{question} → {answer}", _USER))

    def add_requests(self, request: str) -> None:
        """Note a request of the user."""
        self.add(Column.REQUESTS, Entry(request, _USER))

    def add_trajectories(self, text: str, agent: str) -> None:
        """Note what an agent did."""
        self.add(Column.TRAJECTORIES, Entry(text, Provenance(Origin.MODEL, agent)))

    def add_image(self, image: Image, reason: str, screen: str) -> None:
        """Keep a picture with the model's reason."""
        self.add(Column.SCREENSHOTS, Entry(reason, Provenance(Origin.SCREEN, screen), image))

    def entries(self, column: Column) -> tuple[Entry, ...]:
        """Return a column, oldest first."""
        return tuple(self._columns[column])

    def blackboard_to_prompt(
        self, fence: Fence, *, budget_tokens: int = 1_000, most_images: int = 2, without_source: str = ""
    ) -> tuple[str, tuple[Image, ...]]:
        """Return the text within the budget, newest entries first to be kept, and the newest pictures.

        Empty text and no pictures when there is nothing to say. `without_source` leaves out one agent's own entries:
        it has them in its memory.
        """
        share = budget_tokens // len(Column)
        parts = []
        for column, entries in self._columns.items():
            kept: list[str] = []
            left = share
            for entry in reversed(entries):
                if without_source and entry.provenance.source == without_source:
                    continue
                line = _rendered(entry, fence, share)
                if estimate_tokens(line) > left and kept:
                    break
                kept.append(line)
                left -= estimate_tokens(line)
            if kept:
                parts.append("\n".join([f"{_HEADINGS[column]}:", *reversed(kept)]))
        pictures = [entry.image for entry in self._columns[Column.SCREENSHOTS] if entry.image is not None]
        return "\n\n".join(parts), tuple(pictures[-most_images:] if most_images else ())


def _rendered(entry: Entry, fence: Fence, budget_tokens: int) -> str:
    text = clip(entry.text, budget_tokens)
    return f"- {text}" if entry.provenance.origin.is_trusted else fence(text, entry.provenance)
