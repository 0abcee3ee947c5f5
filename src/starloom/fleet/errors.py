"""What can go wrong between the hub and a device; raised by the fleet, caught by who performs attempts."""

from starloom.errors import DeviceError


class UnknownDevice(DeviceError):
    """No device of this id was ever seen."""

    def __init__(self, device_id: str) -> None:
        super().__init__(
            f"There is no device {device_id!r}. `starloom devices` lists the ones that are known.", device_id=device_id
        )


class DeviceOffline(DeviceError):
    """The device is not connected; nothing was sent to it."""

    def __init__(self, device_id: str) -> None:
        super().__init__(
            f"The device {device_id!r} is not connected, so nothing was sent. Start it with `starloom join`.",
            device_id=device_id,
        )


class DeviceLost(DeviceError):
    """The connection went while a command was out. `in_doubt`: it may have taken effect."""

    in_doubt = True

    def __init__(self, device_id: str, session_id: str) -> None:
        super().__init__(
            f"The device {device_id!r} was lost while it worked; what it did last is not known.",
            device_id=device_id,
            session_id=session_id,
        )


class CallTimedOut(DeviceError):
    """The device did not answer in time and was told to stop. `in_doubt`: the command may have taken effect."""

    in_doubt = True

    def __init__(self, device_id: str, session_id: str, timeout_s: float) -> None:
        super().__init__(
            f"The device {device_id!r} did not answer within {timeout_s:g} s and was told to stop.",
            device_id=device_id,
            session_id=session_id,
        )


class TaskNotTaken(DeviceError):
    """A device or an upstream server refused a task; it never began."""
