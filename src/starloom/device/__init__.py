"""The device process: one link to a hub, one tool router, one record of attempts. No model key ever gets here.

It is used by the command line (`starloom join`) and by the composition root (the local device). It must stay thin:
importing it loads no model, MCP or web library.
"""
