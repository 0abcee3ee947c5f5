"""DATA_COLLECTION of a device agent without a screen: what the device offers, and what lies in its folder.

The listing is a tool call through the dispatcher like any other; a device without such a tool simply has no listing.
A step that is on record is not looked at again.
"""

import hashlib
import json
from collections.abc import Mapping

from starloom.agents.assignment import Assignment
from starloom.agents.resumption import AgentPast
from starloom.processing.dispatch import Command, CommandDispatcher, CommandStatus
from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import depends_on, provides

LISTING_TOOL = "files.list"
NO_LISTING = "(the device does not list its folder)"


@depends_on(agent=str, assignment=Assignment, step=int)
@provides(tools=tuple, screen=str, screen_digest=str)
class CollectWorkspace:
    """Gives `tools` (what the device offers), `screen` (its folder's listing as text) and the screen's digest."""

    name = "CollectWorkspace"
    fail_fast = True

    def __init__(
        self, dispatcher: CommandDispatcher, past: AgentPast | None = None, *, timeout_s: float | None = 30.0
    ) -> None:
        self._dispatcher = dispatcher
        self._past = past or AgentPast()
        self._timeout_s = timeout_s

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """List the folder, when the device has the tool for it."""
        device = context.require("assignment", Assignment).device
        past = self._past.step(context.require("agent", str), context.require("step", int))
        if past is not None:
            return {"tools": device.tools, "screen": "", "screen_digest": past.screen}
        screen = NO_LISTING
        if any(tool.name == LISTING_TOOL for tool in device.tools):
            [result] = await self._dispatcher.execute_commands(
                [Command(LISTING_TOOL, {}, call_id="listing")], timeout_s=self._timeout_s
            )
            if result.status is CommandStatus.SUCCESS:
                screen = listing_text(result.result)
            else:
                screen = f"(the folder could not be listed: {result.error})"
        digest = hashlib.sha256(screen.encode()).hexdigest()[:16]
        return {"tools": device.tools, "screen": screen, "screen_digest": digest}


def listing_text(listing: object) -> str:
    """Return a listing as one line an entry; any other shape as compact JSON."""
    entries = listing.get("entries") if isinstance(listing, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return json.dumps(listing, ensure_ascii=False)
    lines = [_entry_line(entry) for entry in entries]
    if isinstance(listing, dict) and listing.get("truncated"):
        lines.append("… and more")
    return "\n".join(lines) or "(empty)"


def _entry_line(entry: Mapping[str, object]) -> str:
    path = entry.get("path") or entry.get("name")
    return f"{path}/" if entry.get("kind") == "folder" else f"{path} ({entry.get('size_bytes', '?')} bytes)"
