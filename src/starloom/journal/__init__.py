"""The journal: what happened in every run, appended before anyone acts on it, and the only truth after a crash.

It is not a message bus, not a cache and not a place for large things: screenshots and long results are artefacts,
files named by their hash. Folds over the events live with whoever needs the folded state (orchestrator, session, cli).
Called by the orchestrator's runner, the session and the hub (write) and by console, page and recovery (read).
"""
