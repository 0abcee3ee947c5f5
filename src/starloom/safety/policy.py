"""The policy: a pure judgement of one action from facts, before any of it is carried out.

Called by the gate in the hub (`safety.gate`) and again by the device's tool router. Nothing here awaits, reads a clock
or looks at a disk. Permission is code: a model may ask for a confirmation, only these rules can waive one.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Risk(StrEnum):
    """What a tool can do at worst, in growing order. Source: recipes-and-knowledge.md section 2."""

    READ = "read"
    UNDOABLE = "undoable"
    WRITE = "write"
    EXTERNAL = "external"
    IRREVERSIBLE = "irreversible"


class Decision(StrEnum):
    """What the policy says of an action."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class ProposedAction:
    """One tool call that someone wants made. `destinations`: the argument values that say where it acts."""

    device_id: str
    tool: str
    arguments: dict[str, Any]
    risk: Risk | None  # None: the tool is unknown to the hub
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the judgement may rest on.

    `trusted_text` is the user's own words (request, recipe parameters, a recipe's own literals), never anything read
    from a screen, file or tool. `suspicions` are the names of detectors that fired on what led to the action: they only
    ever raise what is asked.
    """

    trusted_text: str = ""
    approved_hashes: frozenset[str] = field(default_factory=frozenset)
    suspicions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, the rule that made it, and a sentence for the person who is asked or told."""

    decision: Decision
    rule: str
    reason: str
