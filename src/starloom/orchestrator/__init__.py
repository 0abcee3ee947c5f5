"""The orchestrator: decides what runs next (pure scheduler) and drives one run to its end (asynchronous runner).

It does not know the fleet or the agents: it is handed an executor and a device directory (`ports`); the session does.
"""
