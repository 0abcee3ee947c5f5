"""The devices: who is connected, what each can do, and one orderly queue of commands for every one of them.

It is used by the composition root, which joins it to orchestrator and agents, and by the hub, which hands it
connections. It does not decide which device a task goes to (orchestrator) or what to do there (agents), and it opens
no listener.
"""
