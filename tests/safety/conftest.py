"""Hypothesis without deadlines, since the machine is shared; more examples with `STARLOOM_PROPERTIES=long`."""

import os

from hypothesis import settings

settings.register_profile("short", deadline=None, max_examples=60)
settings.register_profile("long", deadline=None, max_examples=5_000)
settings.load_profile("long" if os.environ.get("STARLOOM_PROPERTIES") == "long" else "short")
