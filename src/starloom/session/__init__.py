"""Sessions and runs: from a request or a recipe to its end, and the composition root that joins all rooms below.

Not for protocols, screens or HTTP: it calls the rooms below through their ports. Only `hub` and `cli` call it;
`build.py` is the only file that knows everyone.
"""
