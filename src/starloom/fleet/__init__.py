"""The devices: who is connected, what each can do, and one orderly queue of commands for every one of them.

Used by the composition root, which joins it to orchestrator and agents, and for the hub, which hands it connections. Not
for deciding which device a task goes to (orchestrator) or what to do on it (agents), and it opens no listener.
"""
