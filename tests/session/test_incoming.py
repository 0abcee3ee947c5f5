"""A task over the wire is a run: upstream's constellation client against a whole hub with a scripted model."""

from pathlib import Path

import pytest

from starloom.aip.messages import (
    ClientMessage,
    ClientMessageType,
    ClientType,
    ServerMessage,
    ServerMessageType,
    TaskStatus,
)
from starloom.aip.transport import Transport, memory_pair
from starloom.background import background
from starloom.llm.scripted import ScriptedServer
from starloom.places import places
from starloom.session.build import galaxy_here
from starloom.settings import Settings


def reply(status: str, *, result: str | None = None, action: object = ()) -> dict[str, object]:
    return {
        "observation": "o",
        "thought": "t",
        "status": status,
        "action": list(action),
        "plan": [],
        "comment": "",
        "questions": [],
        "result": result,
    }


async def send(transport: Transport, kind: ClientMessageType, **fields: object) -> None:
    message = ClientMessage(
        type=kind,
        status=TaskStatus.OK,
        client_type=ClientType.CONSTELLATION,
        client_id="galaxy@hub",
        target_id="hub",
        **fields,
    )
    await transport.send(message.to_json())


async def until_end(transport: Transport) -> ServerMessage:
    while True:
        message = ServerMessage.from_json(str(await transport.receive()))
        if message.type is ServerMessageType.TASK_END:
            return message


@pytest.mark.parametrize(
    ("replies", "status"),
    [([reply("FINISH", result="hello")], TaskStatus.COMPLETED), ([reply("FAIL", result="cannot")], TaskStatus.FAILED)],
)
async def test_a_task_of_a_constellation_client_is_run_and_answered(tmp_path: Path, replies, status: TaskStatus):
    place = places({"STARLOOM_HOME": str(tmp_path / "home")})
    with ScriptedServer(replies) as server:
        environ = {"STARLOOM_MODEL": server.model_form}
        async with galaxy_here(place, Settings(), workspace=tmp_path, environ=environ) as galaxy, background() as tasks:
            ours, theirs = memory_pair()
            tasks.create_task(galaxy.fleet.serve(ours))
            await send(theirs, ClientMessageType.REGISTER)
            confirmed = ServerMessage.from_json(str(await theirs.receive()))
            assert confirmed.status is TaskStatus.OK
            await send(theirs, ClientMessageType.TASK, session_id="galaxy@t1", task_name="t", request="say hello")
            ended = await until_end(theirs)
            [run] = await galaxy.journal.runs()
    assert (ended.session_id, ended.status) == ("galaxy@t1", status)
    assert run.request == "say hello"
    if status is TaskStatus.COMPLETED:
        assert ended.result == [{"request": "say hello", "result": "hello"}]
    else:
        assert ended.error
