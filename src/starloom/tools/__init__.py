"""What a device can do: toolsets of typed functions, the router that calls them, and MCP as their face.

Called by the device process and, for their names and schemas, by the session. A toolset knows nothing of agents, plans
or the wire; whether an action may happen is decided by `safety` before it arrives here.
"""
