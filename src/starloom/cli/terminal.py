"""The terminal as a person's place: questions with an answer, and whether anyone is there to answer.

Called by `console` and the commands. Reading blocks, so it happens in a daemon thread: Ctrl-C never waits for a line.
"""

import asyncio
import sys
import threading

from starloom.safety.provenance import visible


def someone_is_there() -> bool:
    """Tell whether questions can be asked: both ends of the terminal are a person's."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def ask(prompt: str) -> str:
    """Show the prompt and return the line a person types; an empty string when the input ends."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[str] = loop.create_future()

    def settle(line: str) -> None:
        if not answered.done():
            answered.set_result(line)

    def read() -> None:
        sys.stderr.write(visible(prompt))
        sys.stderr.flush()
        line = sys.stdin.readline().strip()
        loop.call_soon_threadsafe(settle, line)

    threading.Thread(target=read, name="terminal question", daemon=True).start()
    return await answered


def is_yes(answer: str, *, default: bool = False) -> bool:
    """Read a yes or no; an empty line is the default, anything unclear is no."""
    word = answer.strip().lower()
    return default if not word else word in {"y", "yes", "j", "ja", "是"}
