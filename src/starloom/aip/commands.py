"""Commands that wait for their results: which answer belongs to which question.

One book per device session; it outlives connections, like the ledger. Used by the server's core. A COMMAND is known
by its `response_id`; an answer counts only when it names that id and the same session, once, and its results are put
back into the commands' order by `call_id`. Everything else is dropped: late, doubled, forged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from starloom.aip.messages import ClientMessage, Result, ResultStatus

NO_RESULT = "The device sent no result for this command."


class WaitingCommand(Struct, frozen=True):
    """A COMMAND that was sent and not answered yet."""

    response_id: str
    session_id: str
    call_ids: tuple[str | None, ...]


@dataclass(slots=True)
class CommandBook:
    """All COMMANDs of one device session that wait."""

    _waiting: dict[str, WaitingCommand] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, response_id: str, session_id: str, call_ids: Sequence[str | None]) -> None:
        """Expect one answer for the commands with these ids."""
        self._waiting[response_id] = WaitingCommand(response_id, session_id, tuple(call_ids))

    def forget(self, response_id: str) -> None:
        """Expect no answer any more; one that still comes is dropped."""
        self._waiting.pop(response_id, None)

    def waiting(self) -> tuple[WaitingCommand, ...]:
        """Return what waits, oldest first."""
        return tuple(self._waiting.values())

    def settle(self, message: ClientMessage) -> tuple[str, list[Result]] | None:
        """Return the answered `response_id` and one Result per Command in their order; None when it answers nothing."""
        waiting = self._waiting.get(message.prev_response_id or "")
        if waiting is None or message.session_id != waiting.session_id:
            return None
        del self._waiting[waiting.response_id]
        return waiting.response_id, in_order(waiting.call_ids, message.action_results or [])


def in_order(call_ids: Sequence[str | None], results: Sequence[Result]) -> list[Result]:
    """Return one Result per call: by `call_id` when every result names a different expected one, else by position.

    Missing results become failures, surplus ones are dropped.
    """
    if [result.call_id for result in results] == list(call_ids):
        return list(results)
    named: dict[str | None, Result] = {result.call_id: result for result in results if result.call_id is not None}
    if len(named) == len(results) and named.keys() <= set(call_ids):
        return [named.get(call_id) or _missing(call_id) for call_id in call_ids]
    padded = [*results[: len(call_ids)], *(None for _ in range(len(call_ids) - len(results)))]
    return [
        replace(result, call_id=call_id) if result is not None else _missing(call_id)
        for call_id, result in zip(call_ids, padded, strict=True)
    ]


def _missing(call_id: str | None) -> Result:
    return Result(status=ResultStatus.FAILURE, error=NO_RESULT, call_id=call_id)
