"""What follows from a step: every ruling and status has one named consequence."""

import pytest

from starloom.agents.conclusion import conclude
from starloom.agents.replies import ActionCommandInfo, DeviceAgentResponse
from starloom.agents.status import StopReason
from starloom.agents.strategies.act import ActionOutcome
from starloom.agents.strategies.guard import Guarded, Ruling
from starloom.processing.dispatch import CommandResult, CommandStatus
from starloom.safety.policy import Decision, Verdict

ACTION = ActionCommandInfo(tool="a")
NO = Verdict(Decision.DENY, "rule", "because")
STATUSES = ["CONTINUE", "SCREENSHOT", "PENDING", "CONFIRM", "FINISH", "FAIL"]


def follow(status, ruling=Ruling.ADMITTED, *, succeeded=True, denials=0, **more):
    reply = DeviceAgentResponse(thought="t", status=status, **more)
    result = CommandResult("", CommandStatus.SUCCESS if succeeded else CommandStatus.FAILURE)
    guarded = Guarded(ruling, (ACTION,), NO if ruling in (Ruling.DENIED, Ruling.REFUSED) else None)
    return conclude(reply, guarded, [ActionOutcome(ACTION, result)], denials=denials, most_denials=2)


@pytest.mark.parametrize("status", STATUSES)
def test_a_persons_no_ends_the_work_whatever_the_model_wrote(status):
    end = follow(status, Ruling.REFUSED)
    assert (end.status, end.stop_reason, end.error) == ("FINISH", StopReason.USER_REFUSED, "because")


@pytest.mark.parametrize("status", STATUSES)
def test_the_policys_no_is_fed_back_until_the_limit(status):
    assert follow(status, Ruling.DENIED, denials=1).status == "CONTINUE"
    end = follow(status, Ruling.DENIED, denials=2)
    assert (end.status, end.stop_reason) == ("FAIL", StopReason.POLICY_DENIED)


@pytest.mark.parametrize("status", STATUSES)
def test_a_third_repeat_is_no_progress(status):
    end = follow(status, Ruling.REPEATED)
    assert (end.status, end.stop_reason) == ("FAIL", StopReason.NO_PROGRESS)


def test_going_in_circles_is_asked_about_before_it_ends_the_work():
    reply = DeviceAgentResponse(thought="t", status="CONTINUE")
    guarded = Guarded(Ruling.REPEATED, (ACTION,))
    end = conclude(reply, guarded, [], denials=0, most_denials=2, can_ask=True)
    assert (end.status, end.stop_reason) == ("PENDING", None)


def test_a_held_action_waits_and_a_confirmed_one_goes_on():
    assert follow("CONFIRM", Ruling.HELD).status == "CONFIRM"
    assert follow("CONFIRM", Ruling.ADMITTED).status == "CONTINUE"


def test_finish_with_a_failed_action_is_not_finished():
    assert follow("FINISH", succeeded=False).stop_reason is None
    assert follow("FINISH", succeeded=False).status == "CONTINUE"


def test_finish_gives_the_result_or_the_comment():
    assert follow("FINISH", result={"n": 1}).result == {"n": 1}
    assert follow("FINISH", comment="done").result == "done"
    assert follow("FINISH").stop_reason is StopReason.FINISHED
    assert follow("FINISH", result=0).result == 0


def test_fail_says_why():
    assert follow("FAIL", comment="no such file").error == "no such file"
    assert follow("FAIL").error == "t"


@pytest.mark.parametrize("status", ["CONTINUE", "SCREENSHOT", "PENDING"])
def test_other_words_are_taken_as_written(status):
    assert follow(status).status == status
