"""Deadlines are held by whoever asks a person, through the context, also from tasks of the task's own."""

import asyncio

import pytest

from starloom.patience import a_person_thinking, under


class Counted:
    def __init__(self):
        self.calls = []

    def hold(self):
        self.calls.append("hold")

    def go_on(self):
        self.calls.append("go on")


async def ask():
    with a_person_thinking():
        await asyncio.sleep(0)


async def test_all_deadlines_are_held_from_a_task_within_the_task():
    outer, inner = Counted(), Counted()
    with under(outer), under(inner):
        await asyncio.create_task(ask())
    await ask()
    assert outer.calls == inner.calls == ["hold", "go on"]


async def test_time_goes_on_when_the_answer_is_an_error():
    deadline = Counted()
    with under(deadline), pytest.raises(ValueError, match="no"), a_person_thinking():
        raise ValueError("no")
    assert deadline.calls == ["hold", "go on"]
