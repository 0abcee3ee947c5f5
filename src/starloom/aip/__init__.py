"""The Agent Interaction Protocol: what travels between hub, devices and constellation clients, and in which order.

It is used by `fleet` (the server's end and outposts), `device` (the device's end) and the hub's listener. It does not
decide who may connect, what a command does, or where a task runs: those are the callers' business.
"""
