"""Settings of a run: limits, waits, retries and when the planner is asked; one frozen value handed to the runner."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class ReplanPolicy(StrEnum):
    """When the planner is called again."""

    ON_SURPRISE = "on_surprise"
    AFTER_EACH = "after_each"
    NEVER = "never"


class InDoubt(StrEnum):
    """What happens when nobody knows whether a task that must not be repeated took effect."""

    ASK = "ask"
    FAIL = "fail"
    AGAIN = "again"


class RunSettings(BaseModel):
    """How one run behaves. Source: constellation.md, Scheduling."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_concurrent_tasks: int | None = Field(default=None, ge=1, description="Live attempts at once; none: no limit.")
    default_timeout_s: float | None = Field(default=None, gt=0, description="For tasks without a timeout of their own.")
    retry_delay_s: float = Field(default=1.0, ge=0, description="Wait before the first retry.")
    retry_factor: float = Field(default=2.0, ge=1, description="Each further retry waits this many times longer.")
    retry_max_delay_s: float = Field(default=60.0, ge=0, description="No retry waits longer.")
    device_wait_s: float | None = Field(
        default=60.0, ge=0, description="How long a ready task waits for a device that nobody has; none: for ever."
    )
    device_lost_s: float = Field(
        default=10.0, ge=0, description="How long a device may be away before its attempts are given up."
    )
    device_losses: int = Field(default=3, ge=0, description="How often an idempotent task is re-assigned after a loss.")
    in_doubt: InDoubt = Field(
        default=InDoubt.FAIL,
        description="When nobody knows whether a task that must not be repeated took effect: ask a person, fail it "
        "(a planner may then decide), or run it again. `ask` leaves lost devices to the executor.",
    )
    replan: ReplanPolicy = Field(default=ReplanPolicy.ON_SURPRISE, description="When the planner is called again.")
    max_replans: int = Field(default=10, ge=0, description="Calls of the planner in one run, at most.")
    stop_grace_s: float = Field(default=2.0, gt=0, description="How long a cancelled attempt may take to stop.")
    writes_run_ended: bool = Field(default=True, description="The runner writes the run's end; else the session does.")
