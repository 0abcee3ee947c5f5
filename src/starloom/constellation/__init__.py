"""The constellation: tasks, edges, their graph and its editing; pure values and rules, no time and no input or output.

It is not the engine: nothing here starts work. Anyone above the ground may call it; it imports the ground only.
"""
