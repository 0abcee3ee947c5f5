"""Asking a person one question, on record. Called by the agents when they are PENDING."""

from starloom.agents.ports import Interactor, Recorder
from starloom.agents.record import Answered, Asked
from starloom.ids import Ids


async def put_question(question: str, interactor: Interactor | None, record: Recorder, ids: Ids) -> str | None:
    """Return the answer, None when nobody answers; question and answer are recorded either way."""
    number = ids.new("question")
    await record(Asked(number, question))
    answer = await interactor.ask(question) if interactor is not None else None
    await record(Answered(number, answer or "", "nobody" if answer is None else "user"))
    return answer
