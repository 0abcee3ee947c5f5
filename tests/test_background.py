"""Facts about tasks that live as long as a block."""

import asyncio

import pytest

from starloom.background import background


async def test_members_are_cancelled_when_the_block_is_left():
    ended: list[str] = []

    async def member() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("member")

    async with background() as tasks:
        tasks.create_task(member())
        await asyncio.sleep(0)
    assert ended == ["member"]


async def test_the_bodys_error_leaves_as_itself():
    async def body() -> None:
        async with background() as tasks:
            tasks.create_task(asyncio.Event().wait())
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await body()


async def test_a_members_failure_ends_the_body():
    async def member() -> None:
        raise ValueError("member")

    async def body() -> None:
        async with background() as tasks:
            tasks.create_task(member())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await body()
    assert caught.group_contains(ValueError, match="member")


async def test_cancelling_the_block_cancels_the_members():
    started = asyncio.Event()
    ended: list[str] = []

    async def member() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("member")

    async def body() -> None:
        async with background() as tasks:
            tasks.create_task(member())
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["member"]
