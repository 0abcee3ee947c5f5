"""Starloom: one sentence becomes a graph of tasks, run by agents on many devices.

The tour of the main path is `docs/tour.md`; the rooms and who may import whom are in `docs/architecture.md`.
"""

__version__ = "0.1.0"
