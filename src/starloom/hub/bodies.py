"""What a caller sends to the hub: the base of all bodies, and the answer to one that is unfit.

Called by `hub.app` and the routes beside it. A body can hold what no JSON text can carry back: half a character, a
number that is none. Such a body is refused whole, and the refusal does not repeat it.
"""

import json
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, model_validator


class Body(BaseModel):
    """The base of the bodies: no fields but the named ones, and nothing that could not be stored or sent on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _can_be_carried(cls, value: Any) -> Any:  # noqa: ANN401 - whatever JSON came
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):  # a UnicodeEncodeError is a ValueError
            raise ValueError("holds half a character, a number that is none, or too many brackets") from None
        return value


def refusal(error: RequestValidationError) -> Response:
    """Return the answer to a body, path or query that does not fit: where and why, without what was sent."""
    faults = [{name: fault[name] for name in ("type", "loc", "msg")} for fault in error.errors()]
    return Response(json.dumps({"detail": faults}), status_code=422, media_type="application/json")
