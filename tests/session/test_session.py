"""A session asks until there is no more, and its finalisers always run."""

import asyncio

import pytest

from starloom.agents.status import StopReason
from starloom.processing.context import Context
from starloom.session.round import RoundOutcome
from starloom.session.session import Session


class Requests:
    def __init__(self, *requests):
        self.left = list(requests)
        self.seen = []

    async def next_request(self, last):
        self.seen.append(last and last.stop_reason)
        request = self.left.pop(0) if self.left else None
        if isinstance(request, BaseException):
            raise request
        return request


class Ending:
    def __init__(self, request, reason):
        self.request, self.reason = request, reason

    async def run(self):
        if isinstance(self.reason, BaseException):
            raise self.reason
        return RoundOutcome(self.request, self.reason, error="e")


def session(requests, *reasons, **more):
    left = list(reasons)
    made = []

    def make(request, number, context):
        made.append((request, number, context))
        return Ending(request, left.pop(0))

    return Session(requests, make, **more), made


async def test_rounds_are_made_until_there_is_no_request():
    requests = Requests("one", "two")
    built, made = session(requests, StopReason.FAILED, StopReason.FINISHED)
    outcome = await built.run()
    assert outcome.stop_reason is StopReason.FINISHED
    assert [(request, number) for request, number, _ in made] == [("one", 0), ("two", 1)]
    assert requests.seen == [None, StopReason.FAILED, StopReason.FINISHED]
    assert all(context is built.context for _, _, context in made)


async def test_a_session_without_requests_is_finished():
    built, _ = session(Requests())
    assert (await built.run()).stop_reason is StopReason.FINISHED


async def test_the_last_rounds_end_is_the_sessions():
    built, _ = session(Requests("one"), StopReason.NO_PROGRESS)
    assert (await built.run()).stop_reason is StopReason.NO_PROGRESS


async def test_an_error_ends_the_session():
    built, made = session(Requests("one", "two"), StopReason.ERROR)
    assert (await built.run()).stop_reason is StopReason.ERROR
    assert len(made) == 1


async def test_rounds_are_limited():
    built, _ = session(Requests("a", "b", "c"), *[StopReason.FINISHED] * 3, max_rounds=2)
    outcome = await built.run()
    assert (outcome.stop_reason, len(outcome.rounds)) == (StopReason.ROUND_LIMIT, 2)


async def test_finalisers_run_always_each_for_itself():
    seen = []

    async def broken(outcome):
        raise RuntimeError("disk full")

    async def report(outcome):
        seen.append(outcome.stop_reason)

    built, _ = session(Requests("one"), StopReason.FAILED, finalisers=[broken, report])
    outcome = await built.run()
    assert seen == [StopReason.FAILED]
    assert outcome.finaliser_errors == ("broken: disk full",)


@pytest.mark.parametrize(
    ("requests", "reason", "raised"),
    [
        (Requests(RuntimeError("no more input")), StopReason.ERROR, RuntimeError),
        (Requests(asyncio.CancelledError()), StopReason.CANCELLED, asyncio.CancelledError),
    ],
)
async def test_finalisers_run_before_what_broke_the_session_goes_out(requests, reason, raised):
    seen = []

    async def report(outcome):
        seen.append(outcome.stop_reason)

    built, _ = session(requests, finalisers=[report])
    with pytest.raises(raised):
        await built.run()
    assert seen == [reason]


def test_two_sessions_share_no_context():
    one, _ = session(Requests())
    other, _ = session(Requests())
    assert one.context is not other.context
    given = Context()
    assert session(Requests(), context=given)[0].context is given
