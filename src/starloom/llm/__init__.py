"""Language models: the port, its adapters, their replies, limits and costs.

What it is for: one `Model` port over every provider and one `GrammarModel` over the embedded weights, so that agents
never see a provider's library. What it is not: prompts and the meaning of replies belong to `agents`.
Called by `agents`, `knowledge`, `session` (wiring) and `cli` (`model`, `doctor`, `cost`). Heavy libraries are imported
inside the modules that use them: `openai_compatible` (pydantic-ai), `embedded` (xllamacpp).
"""
