"""The command line: commands, and console views that read the journal's events.

Not for logic: a command parses its arguments, calls one room and prints. Nobody imports this room; `main.main` is the
program's entry. Commands are imported when they are run, so that `starloom --help` starts fast.
"""
