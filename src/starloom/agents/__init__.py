"""Who decides: agents with their states, the strategies of their steps, their memory, and the planners.

Is: states and transition tables, device agents (shell; host and app), the constellation's agent, drafts and their
checks, prompts and reply schemas. Is not: how a model is reached (`llm`), what is permitted (`safety`), how an action
travels (the dispatcher port of `processing`). Never imports `fleet` or `orchestrator`. Called by `session`.
"""
