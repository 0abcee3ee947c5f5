"""Asking a person one question, on record. Called by the agents when they are PENDING."""

from starloom.agents.ports import Interactor, Recorder
from starloom.agents.record import Answered, Asked
from starloom.agents.resumption import PastStep
from starloom.ids import Ids


async def put_question(
    question: str, interactor: Interactor | None, record: Recorder, ids: Ids, past: PastStep | None = None
) -> str | None:
    """Return the answer, None when nobody answers; question and answer are recorded either way.

    An answer that is on record, in `past`, is taken from there.
    """
    if past is not None and question in past.answers:
        return past.answers[question]
    number = ids.new("question")
    await record(Asked(number, question))
    answer = await interactor.ask(question) if interactor is not None else None
    await record(Answered(number, answer or "", "nobody" if answer is None else "user"))
    return answer
