"""Words for how an agent stands and how work ends, each defined once. Read by states, sessions and reports."""

from enum import StrEnum


class AgentStatus(StrEnum):
    """Every word that one of our own agents can stand at; each agent's own table is in its states' module."""

    START = "START"
    CONTINUE = "CONTINUE"
    ASSIGN = "ASSIGN"
    SCREENSHOT = "SCREENSHOT"
    PENDING = "PENDING"
    CONFIRM = "CONFIRM"
    FINISH = "FINISH"
    FAIL = "FAIL"
    ERROR = "ERROR"


class StopReason(StrEnum):
    """Why a round or a session ended. Source: device-agents.md, Three layers."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STEP_LIMIT = "step_limit"
    ROUND_LIMIT = "round_limit"
    TIME_LIMIT = "time_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a count of tokens, not a secret
    COST_LIMIT = "cost_limit"
    NO_PROGRESS = "no_progress"
    POLICY_DENIED = "policy_denied"
    USER_REFUSED = "user_refused"
    ERROR = "error"


class Evidence(StrEnum):
    """What a success rests on: something read back after the last change, or the agent's word alone."""

    CHECKED = "checked"
    CLAIMED = "claimed"
