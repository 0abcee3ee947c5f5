"""What can go wrong with a model, by who must act: one class, one table, one clear line each.

Raised by `llm.completion`; read by `llm.fallback` (what another model may answer) and by people.

    kind              acts         another model helps   said when
    wrong_key         the user     no                    401 403
    unknown_model     the user     no                    404
    bad_request       us           no                    400 422
    too_long          us           yes                   413, or a 400 that says the context is full
    not_json          the user     no                    a web page or something else that is no model's answer
    content_filter    the user     yes                   the provider would not answer
    unreachable       provider     yes                   refused, reset, no such host
    timed_out         provider     yes                   nothing in time, 408 504
    rate_limited      provider     yes                   429
    server_error      provider     yes                   500 502 503 529
    broken_off        provider     yes                   a stream that ended before its reply did
    unusable_reply    the model    yes                   no valid reply after the repair turns
    cut_off           the model    yes                   the reply reached its token limit
    out_of_budget     the user     no                    a budget would be broken by the call
"""

from enum import StrEnum

from starloom.errors import ModelError
from starloom.llm.port import Usage


class FaultKind(StrEnum):
    """Why there is no reply."""

    WRONG_KEY = "wrong_key"
    UNKNOWN_MODEL = "unknown_model"
    BAD_REQUEST = "bad_request"
    TOO_LONG = "too_long"
    NOT_JSON = "not_json"
    CONTENT_FILTER = "content_filter"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    BROKEN_OFF = "broken_off"
    UNUSABLE_REPLY = "unusable_reply"
    CUT_OFF = "cut_off"
    OUT_OF_BUDGET = "out_of_budget"

    @property
    def is_configuration(self) -> bool:
        """Whether the user or we must change something, so that another try or model would only hide it."""
        return self in _CONFIGURATION

    @property
    def is_passing(self) -> bool:
        """Whether the same call may work a little later."""
        return self in _PASSING


_CONFIGURATION = {
    *(FaultKind.WRONG_KEY, FaultKind.UNKNOWN_MODEL, FaultKind.BAD_REQUEST, FaultKind.NOT_JSON, FaultKind.OUT_OF_BUDGET)
}
_PASSING = {
    FaultKind.UNREACHABLE,
    FaultKind.TIMED_OUT,
    FaultKind.RATE_LIMITED,
    FaultKind.SERVER_ERROR,
    FaultKind.BROKEN_OFF,
}

_BY_STATUS = {
    400: FaultKind.BAD_REQUEST,
    401: FaultKind.WRONG_KEY,
    403: FaultKind.WRONG_KEY,
    404: FaultKind.UNKNOWN_MODEL,
    408: FaultKind.TIMED_OUT,
    413: FaultKind.TOO_LONG,
    422: FaultKind.BAD_REQUEST,
    429: FaultKind.RATE_LIMITED,
    504: FaultKind.TIMED_OUT,
}
_CONTEXT_WORDS = (
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "too many tokens",
    "too long",
)


class ModelFault(ModelError):
    """A model call failed. `retry_after_s`: what the provider asked for; `usage`: what it says the call has used."""

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        model: str,
        retry_after_s: float | None = None,
        status: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, model=model, status=status)
        self.kind = kind
        self.model = model
        self.status = status
        self.retry_after_s = retry_after_s
        self.usage = usage


def kind_of_status(status: int, body: str) -> FaultKind:
    """Return what an HTTP status means; one that speaks of the context is too long a request."""
    lowered = body.lower()
    if status in (400, 413, 422, 500) and any(words in lowered for words in _CONTEXT_WORDS):
        return FaultKind.TOO_LONG
    if status == 400 and ("content_filter" in lowered or "content management policy" in lowered):
        return FaultKind.CONTENT_FILTER
    return _BY_STATUS.get(status, FaultKind.SERVER_ERROR if status >= 500 else FaultKind.BAD_REQUEST)


_ADVICE = {
    FaultKind.WRONG_KEY: "refused the key. Check the key and what it may use.",
    FaultKind.UNKNOWN_MODEL: "is not known there. Check the model's name and the address (most end in /v1).",
    FaultKind.BAD_REQUEST: "refused the request as wrong.",
    FaultKind.TOO_LONG: "refused the request as too long for its context.",
    FaultKind.NOT_JSON: "did not answer as a model does. Check the address (most end in /v1).",
    FaultKind.CONTENT_FILTER: "would not answer: its content filter stepped in.",
    FaultKind.UNREACHABLE: "cannot be reached. Is the server running, and is the address right?",
    FaultKind.TIMED_OUT: "gave no answer in time.",
    FaultKind.RATE_LIMITED: "asks to slow down (rate limit or quota).",
    FaultKind.SERVER_ERROR: "failed on its own side.",
    FaultKind.BROKEN_OFF: "stopped in the middle of its reply.",
    FaultKind.UNUSABLE_REPLY: "gave no usable reply.",
    FaultKind.CUT_OFF: "was cut off before the end of its reply. Allow more tokens or ask for less.",
    FaultKind.OUT_OF_BUDGET: "was not asked: the budget would be broken.",
}


def advice(kind: FaultKind, model: str, endpoint: str, detail: str) -> str:
    """Return the one clear line for a person: what was tried, what happened, what to do."""
    tail = f" It said: {detail}" if detail else ""
    return f"The model {model!r} at {endpoint} {_ADVICE[kind]}{tail}"
