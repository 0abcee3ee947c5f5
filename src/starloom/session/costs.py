"""What a model call used, between the port's words and the journal's.

Called by `spending` and `step`, so that every record of a cost says the same things; and by who reads them back.
"""

from starloom.journal.events import CostRecorded
from starloom.llm.port import Usage


def cost_recorded(role: str, model: str, usage: Usage, task_id: str = "") -> CostRecorded:
    """Return the journal's event for a call."""
    return CostRecorded(
        role,
        model,
        usage.input_tokens,
        usage.output_tokens,
        cost=usage.cost,
        task_id=task_id,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        image_tokens=usage.image_tokens,
        is_estimated=usage.is_estimated,
    )


def usage_of(event: CostRecorded) -> Usage:
    """Return what the event's call used."""
    return Usage(
        event.input_tokens,
        event.output_tokens,
        cached_tokens=event.cached_tokens,
        cost=event.cost,
        cache_write_tokens=event.cache_write_tokens,
        reasoning_tokens=event.reasoning_tokens,
        image_tokens=event.image_tokens,
        is_estimated=event.is_estimated,
    )
