"""What an agent keeps of a step, and what it leaves on the blackboard."""

from starloom.agents.blackboard import Blackboard, Column
from starloom.agents.memory import Memory
from starloom.agents.replies import ActionCommandInfo, AppAgentResponse
from starloom.agents.strategies.act import ActionOutcome
from starloom.agents.strategies.guard import Guarded, Ruling
from starloom.agents.strategies.remember import RememberStep
from starloom.agents.untrusted import UntrustedText
from starloom.llm.port import Image
from starloom.processing.context import Context
from starloom.processing.dispatch import CommandResult, CommandStatus
from starloom.processing.processing_context import ProcessingContext

ACTION = ActionCommandInfo(tool="files.read", arguments={"path": "a"})
PICTURE = Image(b"png")


async def remember(ruling=Ruling.ADMITTED, result=None, *, save=False, screenshot=None, shown="three lines"):
    memory, board = Memory(), Blackboard()
    untrusted = UntrustedText(lambda text, label: f"<<{label.source}|{text}>>", lambda text: ())
    outcome = ActionOutcome(ACTION, result or CommandResult("", CommandStatus.SUCCESS, {"lines": 3}), shown)
    reply = AppAgentResponse.model_validate(
        {"thought": "t", "status": "CONTINUE", "action": ACTION, "save_screenshot": {"save": save, "reason": "total"}}
    )
    fields = {"reply": reply, "guarded": Guarded(ruling), "outcomes": (outcome,), "step": 4, "screenshot": screenshot}
    strategy = RememberStep(memory, board, untrusted, agent="A")
    await strategy.execute(ProcessingContext(Context(), fields))
    return memory, board


async def test_what_was_shown_of_a_result_is_fenced_once():
    memory, board = await remember()
    item = memory.get_latest_item()
    assert item.step == 4
    assert item.outcome == "files.read succeeded:\n<<files.read|three lines>>"
    assert [entry.text for entry in board.entries(Column.TRAJECTORIES)] == ['files.read {"path": "a"}']


async def test_a_failure_is_remembered_and_not_shared():
    memory, board = await remember(result=CommandResult("", CommandStatus.FAILURE, error="gone"))
    assert memory.get_latest_item().succeeded is False
    assert board.entries(Column.TRAJECTORIES) == ()


async def test_a_held_step_is_remembered_when_it_is_done():
    memory, _ = await remember(Ruling.HELD, CommandResult("", CommandStatus.SKIPPED))
    assert len(memory) == 0


async def test_a_picture_is_kept_when_the_model_chose_it_with_its_reason():
    _, board = await remember(save=True, screenshot=PICTURE)
    [entry] = board.entries(Column.SCREENSHOTS)
    assert (entry.text, entry.image) == ("total", PICTURE)
    for kept in (await remember(save=False, screenshot=PICTURE), await remember(save=True)):
        assert kept[1].entries(Column.SCREENSHOTS) == ()
