"""Importing the room loads no provider library, no native runtime and no web client."""

import subprocess
import sys

HEAVY = ("pydantic_ai", "openai", "httpx", "httpx2", "xllamacpp", "keyring", "genai_prices", "mcp", "starlette")
MODULES = (
    "agents_yaml budgets completion embedded fallback faults fitting keys opening openai_compatible metering port "
    "prices probe replies scripted settings tracing vendors weight_install weight_sources weights"
)


def test_no_heavy_library_is_loaded() -> None:
    imports = "; ".join(f"import starloom.llm.{name}" for name in MODULES.split())
    code = f"import sys; {imports}; print([name for name in {HEAVY} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
