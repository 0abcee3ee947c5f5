"""Fit turns into a model's context, and say what was left out: in the turns for the model, in the reply for the log.

Called by `llm.completion`. Pure. The first system turns and the last turn always stay; what goes first are the pictures
of older turns, then older turns from the front.
"""

from collections.abc import Sequence
from dataclasses import replace

from starloom.llm.port import Message, estimated_tokens


def compacted(messages: Sequence[Message], room_tokens: int) -> tuple[list[Message], str]:
    """Return the turns that fit, and what was done in a few words; empty words when everything fits.

    When even the fixed turns do not fit they are returned as they are: the endpoint's refusal says it better.
    """
    turns = list(messages)
    if estimated_tokens(turns) <= room_tokens:
        return turns, ""
    fixed = next((index for index, turn in enumerate(turns) if turn.role != "system"), len(turns))
    pictures = 0
    for index in range(fixed, len(turns) - 1):
        if turns[index].images and estimated_tokens(turns) > room_tokens:
            pictures += len(turns[index].images)
            text = f"{turns[index].text}\n[an older picture was left out]"
            turns[index] = replace(turns[index], text=text, images=())
    dropped = 0
    while estimated_tokens(turns) > room_tokens and len(turns) > fixed + 1:
        del turns[fixed]
        dropped += 1
    if dropped:
        turns.insert(fixed, Message("user", f"[{dropped} older turns were left out to fit the context]"))
    said = [f"{pictures} older pictures"] * bool(pictures) + [f"{dropped} older turns"] * bool(dropped)
    return turns, f"left out: {', '.join(said)}" if said else ""
