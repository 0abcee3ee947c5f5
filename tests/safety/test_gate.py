import asyncio

import pytest

from starloom.ids import CountingIds, RunId
from starloom.safety.approvals import Approval, ApprovalAnswer, action_hash
from starloom.safety.gate import Answered, Asked, Gate
from starloom.safety.policy import Decision, Facts, Risk
from starloom.safety.redaction import Redactor
from starloom.safety.rules import propose

RUN = RunId("run_1")
DELETE = propose("hub", "files.delete", {"path": "a.txt"}, Risk.IRREVERSIBLE, ("path",))


class Person:
    def __init__(self, answer, before=None):
        self.answer, self.before, self.asked = answer, before, []

    async def ask(self, approval: Approval) -> ApprovalAnswer:
        self.asked.append(approval)
        if self.before is not None:
            await self.before()
        return self.answer


def gate(person, redactor=None):
    records = []

    async def record(entry):
        records.append((entry, len(person.asked)))

    return Gate(person, record, CountingIds(), redactor), records


YES, NO = ApprovalAnswer(True, "ada"), ApprovalAnswer(False, "ada", "not today")


async def test_nobody_is_asked_when_the_rules_decide():
    door, records = gate(Person(YES))
    read = propose("hub", "files.read", {"path": "a.txt"}, Risk.READ, ("path",))
    unknown = propose("hub", "files.burn", {"path": "a.txt"}, None)
    assert (await door.admit(read, Facts(), run_id=RUN)).decision is Decision.ALLOW
    assert (await door.admit(unknown, Facts(), run_id=RUN)).decision is Decision.DENY
    assert records == []


async def test_question_is_recorded_before_it_is_asked_and_the_answer_after():
    person = Person(YES)
    door, records = gate(person)
    verdict = await door.admit(DELETE, Facts(), run_id=RUN, task_id="t1")
    assert (verdict.decision, verdict.rule, verdict.reason) == (Decision.ALLOW, "approved", "ada approved it.")
    (asked, before), (answered, after) = records
    assert isinstance(asked, Asked)
    assert isinstance(answered, Answered)
    assert (before, after) == (0, 1)
    assert asked.approval == answered.approval
    assert asked.approval.approval_id == "approval_1"
    assert asked.approval.action_hash == action_hash(DELETE)
    assert (asked.approval.run_id, asked.approval.task_id) == (RUN, "t1")
    assert answered.answer == YES


async def test_refusal_is_a_verdict():
    door, _ = gate(Person(NO))
    verdict = await door.admit(DELETE, Facts(), run_id=RUN)
    assert (verdict.decision, verdict.rule, verdict.reason) == (Decision.DENY, "refused", "ada refused it: not today")


async def test_yes_is_not_spent_on_another_action():
    action = propose("hub", "files.delete", {"path": "a.txt"}, Risk.IRREVERSIBLE, ("path",))

    async def swap():
        action.arguments["path"] = "b.txt"

    door, _ = gate(Person(YES, swap))
    verdict = await door.admit(action, Facts(), run_id=RUN)
    assert (verdict.decision, verdict.rule) == (Decision.DENY, "changed")


async def test_yes_is_asked_for_again_the_second_time():
    person = Person(YES)
    door, _ = gate(person)
    await door.admit(DELETE, Facts(), run_id=RUN)
    await door.admit(DELETE, Facts(), run_id=RUN)
    assert len(person.asked) == 2


async def test_records_hide_secrets_and_the_person_sees_the_action():
    secret = "hunter2hunter2"
    person = Person(ApprovalAnswer(True, "ada", f"uses {secret}"))
    door, records = gate(person, Redactor([secret]))
    action = propose("hub", "shell.run", {"command": f"login {secret}"}, Risk.IRREVERSIBLE, ("command",))
    assert (await door.admit(action, Facts(), run_id=RUN)).decision is Decision.ALLOW
    assert secret in person.asked[0].action.arguments["command"]
    assert secret not in repr(records)
    assert records[0][0].approval.action_hash == action_hash(action)


async def test_cancelling_while_the_person_thinks_leaves_no_answer():
    waiting = asyncio.Event()

    async def wait():
        waiting.set()
        await asyncio.Event().wait()

    door, records = gate(Person(YES, wait))
    admission = asyncio.ensure_future(door.admit(DELETE, Facts(), run_id=RUN))
    await waiting.wait()
    admission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admission
    assert [type(entry) for entry, _ in records] == [Asked]
