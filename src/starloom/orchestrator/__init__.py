"""The orchestrator: decides what runs next (pure scheduler) and drives one run to its end (asynchronous runner).

It knows neither the fleet nor the agents: it is handed an executor and a device directory (`ports`). Called by the
session, which wires it.
"""
