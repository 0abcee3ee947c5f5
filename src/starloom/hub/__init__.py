"""The hub's door: one FastAPI application with the AIP endpoint, the HTTP API and the page.

Not for deciding anything: every route calls the `Galaxy` of `session` and returns what it says. Only `cli` starts it.
"""
