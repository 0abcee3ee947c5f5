"""What may be done, and who said so: the policy, its rules, the gate, and the care taken with foreign text.

Any room above the ground may call it: agents and the session judge actions with it, tools confine their paths with it,
whoever writes a journal or a log redacts with it. It asks and answers; it never carries an action out.
"""
