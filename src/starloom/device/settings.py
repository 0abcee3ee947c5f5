"""The device process's own settings. Nested into the one settings file by the command line."""

from pydantic import BaseModel, ConfigDict, Field


class DeviceSettings(BaseModel):
    """Times and limits of a device.

    Attributes:
        first_delay_s: how long to wait after the first failure to connect; doubled after each further one.
        max_delay_s: the longest wait.
        give_up_after: end the process after so many failures in a row; None: try for ever.
        heartbeat_s: how often to say that we are here, unless the server asks otherwise.
        registration_timeout_s: how long the server's answer to REGISTER may take.
        max_in_flight: how many commands may run at once, where agreed; a screen takes one.
        max_waiting: how many commands may wait for their turn; more are answered as failed at once.
        binary_images: send what tools hand over as bytes in binary frames, where agreed; off, as base64.
        extended: announce our extension; off, the device speaks upstream's protocol only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_delay_s: float = Field(default=1.0, gt=0)
    max_delay_s: float = Field(default=60.0, gt=0)
    give_up_after: int | None = Field(default=None, ge=1)
    heartbeat_s: float = Field(default=30.0, gt=0)
    registration_timeout_s: float = Field(default=30.0, gt=0)
    max_in_flight: int = Field(default=1, ge=1, le=1024)
    max_waiting: int = Field(default=64, ge=1)
    binary_images: bool = True
    extended: bool = True
