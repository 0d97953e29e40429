"""Whether what a model is shown fits its window, and what is left out where it may be.

    disabled   what does not fit is refused before the model is asked
    auto       the oldest whole turns are left out of what is shown, and stay in the history

A window is known by the model's name, or not at all. Where it is not, and where a count was only an
estimate, the model's own refusal decides: with `auto` it is shown less, and asked again.

To count a megabyte takes 30 to 60 ms. What is long is counted beside the loop, which has others to serve.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from convo.compaction import last_turn, within
from convo.errors import ConvoError, WindowExceeded
from convo.items import Event, Json
from convo.models.contract import Ask, Model
from convo.tokens import VOCABULARY, Count, Window, at_most, count, count_each

Windows: TypeAlias = Callable[[str], Window | None]
"""The window of a model by its provider's own name; None where nobody knows it."""

TOO_LONG = WindowExceeded.code

ROOM_TO_ANSWER = 4
"""A part of so many of the window is left to the answer, where the ask does not bound it."""

OFF_BY = 3 / 2
"""An estimate may be so many times more than what its model counts."""

LONG = 64_000
"""More tokens than this at most, and they are counted in a thread."""

UNTOLD = 3 / 4
"""The part that is shown again where a model does not say by how much it was too much."""


def answer(model: Model, ask: Ask, who: str, window: Window | None, *, auto: bool) -> AsyncGenerator[Event, None]:
    """The events of `model`, asked for as much of `ask` as it has room for.

    who:     the model as it was asked for, for the error's sentence
    raises:  WindowExceeded, here or with the first event
    """
    most = at_most(ask.input, ask.instructions, _tools(ask)) if window else 0
    if window is None or most <= (_room(ask, window) if auto else window.context):
        return _answer_to(model, ask, auto=auto)
    if most > LONG:
        return _measured_beside(model, ask, who, window, auto=auto)
    return _answer_to(model, _fitting(ask, who, window, auto=auto), auto=auto)


async def _measured_beside(
    model: Model, ask: Ask, who: str, window: Window, *, auto: bool
) -> AsyncGenerator[Event, None]:
    fitting = await asyncio.to_thread(_fitting, ask, who, window, auto=auto)
    async with aclosing(_answer_to(model, fitting, auto=auto)) as events:
        async for event in events:
            yield event


def _fitting(ask: Ask, who: str, window: Window | None, *, auto: bool) -> Ask:
    """`ask` as the model is shown it. raises: WindowExceeded"""
    if auto:
        return shortened(ask, who, window)
    refuse(ask, who, window)
    return ask


def _answer_to(model: Model, ask: Ask, *, auto: bool) -> AsyncGenerator[Event, None]:
    return _asked_again(model, ask) if auto else model.respond(ask)


def refuse(ask: Ask, who: str, window: Window | None) -> None:
    """raises: WindowExceeded  `ask` certainly does not fit"""
    if window is None or at_most(ask.input, ask.instructions, _tools(ask)) <= window.context:
        return
    need = _certainly(count(ask.input, ask.instructions, _tools(ask)), window)
    if need > window.context:
        raise WindowExceeded(who, need, window.context)


def shortened(ask: Ask, who: str, window: Window | None) -> Ask:
    """`ask` without its oldest turns, where all of it would not leave room for an answer.

    raises:  WindowExceeded  not even its last turn fits
    """
    if window is None:
        return ask
    room = _room(ask, window)
    if at_most(ask.input, ask.instructions, _tools(ask)) <= room:
        return ask
    around = count((), ask.instructions, _tools(ask)).tokens
    left = within(ask.input, count_each(ask.input), room - around)
    ask = replace(ask, input=last_turn(ask.input) if left is None else left)
    refuse(ask, who, window)
    return ask


def too_long(wrong: ConvoError) -> bool:
    """Whether a model said that it was shown more than it has room for."""
    return wrong.code == TOO_LONG


def _certainly(counted: Count, window: Window) -> int:
    """At least how many tokens a model will find where so many were counted."""
    exact = not counted.estimated and window.counted == VOCABULARY
    return counted.tokens if exact else int(counted.tokens / OFF_BY)


def _room(ask: Ask, window: Window) -> int:
    """Tokens of input that leave room for an answer."""
    wanted = ask.parameters.get("max_output_tokens") or window.output or window.context
    return window.context - min(int(wanted), window.context // ROOM_TO_ANSWER)


async def _asked_again(model: Model, ask: Ask) -> AsyncGenerator[Event, None]:
    """The events of `model`, which is shown less as long as it says that it is too much."""
    while True:
        async with aclosing(model.respond(ask)) as events:
            try:
                first = await anext(events, None)
            except ConvoError as wrong:
                ask = _less(ask, wrong)
                continue
            if first is None:
                return
            yield first
            async for event in events:
                yield event
            return


def _less(ask: Ask, wrong: ConvoError) -> Ask:
    """`ask` with turns left out that a model had no room for. raises: `wrong`  nothing can be, or it is not that"""
    if not too_long(wrong):
        raise wrong
    sizes = count_each(ask.input)
    part = wrong.room / wrong.need if isinstance(wrong, WindowExceeded) else UNTOLD
    left = within(ask.input, sizes, min(int(sum(sizes) * part), sum(sizes) - 1))
    left = last_turn(ask.input) if left is None else left
    if len(left) == len(ask.input):
        raise wrong
    return replace(ask, input=left)


def _tools(ask: Ask) -> Json:
    return ask.parameters.get("tools")
