"""One step of an agent as a fixed pipeline, and the state that its session shares.

Is: `Context` (session-wide), `ProcessingContext` (one step), phases, strategies with checked contracts, middleware,
and the port through which actions leave. Is not: any agent's own strategy, prompt or model. It is called by
`agents` and `session`.
"""
