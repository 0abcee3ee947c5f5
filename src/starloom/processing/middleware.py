"""Middleware: what wraps every step of a processor without being part of it — records, progress, budgets.

`before_process` runs in order, `after_process` in reverse, `on_error` in reverse when the step failed. The base class
does nothing, so that an own one overrides only what it needs. Called by `processing.processor`.
"""

from starloom.processing.processing_context import ProcessingContext, ProcessingException


class ProcessorMiddleware:
    """Hooks around one step; all are optional to override."""

    async def before_process(self, context: ProcessingContext) -> None:
        """Run before the first phase. An exception here stops the step before it has done anything."""

    async def after_process(self, context: ProcessingContext) -> None:
        """Run after the last phase, also after a failed step; `context.error` says whether it failed."""

    async def on_error(self, context: ProcessingContext, error: ProcessingException) -> None:
        """Run once when the step has failed, before `after_process`."""
