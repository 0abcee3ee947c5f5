"""The error tree: every failure that Starloom names, branched by who must act on it.

Any room may raise these; a room with a more exact error derives it from one of the branches in its own module.

    StarloomError                 exit code 1
    ├── UsageError        2       the user: a wrong argument, a bad file, a missing setting
    ├── DeviceError       3       whoever runs the device: offline, refused, died
    ├── WireError         4       the other end of a connection: it broke the protocol, or it is not there
    ├── ModelError        5       whoever runs the model: unreachable, wrong key, unusable replies
    ├── PolicyError       6       the policy's owner: an action was denied or its approval refused
    ├── StoreError        7       whoever runs the machine: the journal cannot be read or written
    └── Bug              70       us: an invariant is broken; please report it

A failed tool or task is not an error but a value (`Outcome`, `Result`): the model must see it.
"""


class StarloomError(Exception):
    """Say what was tried, on what, what happened and what to do; ids are keyword attributes.

    Args:
        message: one or two sentences for a person; never a secret.
        **ids: what the failure is about (`task_id`, `device_id`, `path` …), kept in `ids` for logs and JSON output.
    """

    exit_code: int = 1

    def __init__(self, message: str, **ids: str | int | None) -> None:
        super().__init__(message)
        self.message = message
        self.ids = {name: value for name, value in ids.items() if value is not None}


class UsageError(StarloomError):
    """The user asked for something that cannot be done as written."""

    exit_code = 2


class DeviceError(StarloomError):
    """A device is unknown, offline, busy beyond its limit, or refused the work."""

    exit_code = 3


class WireError(StarloomError):
    """The other end of a connection broke the protocol or cannot be reached."""

    exit_code = 4


class ModelError(StarloomError):
    """A model cannot be reached, refuses the key, or gave nothing usable."""

    exit_code = 5


class PolicyError(StarloomError):
    """The policy denied an action, or a person refused it."""

    exit_code = 6


class StoreError(StarloomError):
    """The journal or an artefact cannot be read or written."""

    exit_code = 7


class Bug(StarloomError):
    """An invariant of ours is broken."""

    exit_code = 70
