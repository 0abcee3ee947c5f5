"""The breaker opens after repeated failures, probes once, and lengthens its cooldown."""

from starloom.llm.breaker import Breaker, BreakerLimits, BreakerState

LIMITS = BreakerLimits(failures=2, cooldown_s=10, longest_cooldown_s=30)


def test_opens_after_the_limit_and_probes_once_after_the_cooldown() -> None:
    breaker = Breaker(LIMITS)
    breaker.failed(0)
    assert breaker.admits(0)
    breaker.failed(1)
    assert breaker.state(5) is BreakerState.OPEN
    assert not breaker.admits(5)
    assert breaker.wait_s(5) == 6
    assert breaker.state(11) is BreakerState.HALF_OPEN
    assert breaker.admits(11)
    assert not breaker.admits(11)


def test_success_of_the_probe_closes_it() -> None:
    breaker = Breaker(LIMITS)
    breaker.failed(0)
    breaker.failed(0)
    assert breaker.admits(10)
    breaker.succeeded()
    assert breaker.state(10) is BreakerState.CLOSED
    breaker.failed(11)
    assert breaker.admits(11)


def test_each_failed_probe_doubles_the_cooldown_up_to_the_longest() -> None:
    breaker = Breaker(LIMITS)
    breaker.failed(0)
    breaker.failed(0)
    waits = []
    now = 0.0
    for _ in range(3):
        now += breaker.wait_s(now)
        assert breaker.admits(now)
        breaker.failed(now)
        waits.append(breaker.wait_s(now))
    assert waits == [20, 30, 30]


def test_retry_after_opens_it_at_once_and_for_that_long() -> None:
    breaker = Breaker(LIMITS)
    breaker.failed(0, retry_after_s=7)
    assert breaker.wait_s(0) == 7
    breaker = Breaker(LIMITS)
    breaker.failed(0, retry_after_s=9999)
    assert breaker.wait_s(0) == 30


def test_abandoned_probe_lets_another_one_in() -> None:
    breaker = Breaker(LIMITS)
    breaker.failed(0, retry_after_s=1)
    assert breaker.admits(2)
    breaker.abandoned()
    assert breaker.admits(2)
