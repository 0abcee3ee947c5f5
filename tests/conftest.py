"""What every test may rely on."""

import signal


def pytest_configure() -> None:
    """Let programs that the tests start be interrupted, even where the tests themselves run in a shell's background.

    A shell starts background jobs with Ctrl-C ignored, and children inherit that; a handler of Python's they do not.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
