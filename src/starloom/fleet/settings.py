"""The fleet's own settings: limits and times. Nested into the one settings file by the composition root."""

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FleetSettings(BaseModel):
    """Limits and times of the server's end.

    Attributes:
        registration_timeout_s: how long a new connection may take for its first frame.
        silence_timeout_s: how long a client may say nothing; upstream's devices speak every 120 s.
        heartbeat_s: what clients that announce themselves are asked for; three missed ones end the connection.
        probe_timeout_s: how long an old connection may take to show that it lives when its id registers again.
        fresh_s: an old connection heard from within this time is alive without a probe.
        call_timeout_s: the limit of a call that brings none.
        cancel_grace_s: how long a cancelled call waits for the device to say that it stopped.
        late_answer_s: how long a device that cannot be told to stop stays busy with an abandoned command.
        resume_window_s: how long a lost device may take to come back before its commands are given up.
        lease_s: how long a device may act after it last showed that it lives; as long, after it was lost, nobody but
            the same process, or the next one with its record of attempts, gets its place.
        list_tools_timeout_s: how long a new device may take to list its tools.
        outpost_heartbeat_s: how often we speak to an upstream server.
        outpost_poll_s: how often we ask it whether its device is still there.
        outpost_max_delay_s: the longest wait before dialling it again.
        max_in_flight: the most commands on one device at once, where agreed.
        max_clients: the most registered clients.
        max_known: the most devices remembered; beyond it, ones that are not connected are forgotten, oldest first.
        max_unregistered: the most connections that have not registered yet.
        max_sessions_per_client: the most tasks one client may have running.
        max_message_bytes: the largest frame taken in.
        frames_per_second: the steady pace of one connection; a burst of ten seconds' worth is taken at once.
        unscoped_constellations: constellation clients that name no device may ask about and use all of them. Off:
            only a credential that says so allows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    registration_timeout_s: float = Field(default=30.0, gt=0)
    silence_timeout_s: float = Field(default=300.0, gt=0)
    heartbeat_s: float = Field(default=20.0, gt=0)
    probe_timeout_s: float = Field(default=5.0, gt=0)
    fresh_s: float = Field(default=2.0, ge=0)
    call_timeout_s: float = Field(default=600.0, gt=0)
    cancel_grace_s: float = Field(default=12.0, gt=0)
    late_answer_s: float = Field(default=300.0, gt=0)
    resume_window_s: float = Field(default=30.0, ge=0)
    lease_s: float = Field(default=300.0, gt=0)
    list_tools_timeout_s: float = Field(default=60.0, gt=0)
    outpost_heartbeat_s: float = Field(default=30.0, gt=0)
    outpost_poll_s: float = Field(default=60.0, gt=0)
    outpost_max_delay_s: float = Field(default=60.0, gt=0)
    max_in_flight: int = Field(default=4, ge=1)
    max_clients: int = Field(default=20_000, ge=1)
    max_known: int = Field(default=50_000, ge=1)
    max_unregistered: int = Field(default=1_000, ge=1)
    max_sessions_per_client: int = Field(default=100, ge=1)
    max_message_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    frames_per_second: float = Field(default=500.0, gt=0)
    unscoped_constellations: bool = False

    @model_validator(mode="after")
    def _a_lease_outlives_missed_heartbeats(self) -> "FleetSettings":
        if self.lease_s < 3 * self.heartbeat_s:
            raise ValueError("lease_s must be at least three times heartbeat_s, or devices stop between two heartbeats")
        return self
