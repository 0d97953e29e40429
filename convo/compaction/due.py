"""When a history has grown so long that it should be made smaller.

The bound is a part of the model's window, or tokens. How long the next request will be, the last
answer knows best: what it was asked and what it said. Where nobody knows the window, a part of it is
nothing to go by.
"""

from typing import TypeAlias

from convo.tokens import Usage

At: TypeAlias = float | int
"""A part of the window, up to 1; or more than 1, and tokens; 0: never."""


def due(at: At, used: Usage | None, window: int | None) -> int | None:
    """How many tokens the history takes, where that is as many as `at` allows; None while it may grow.

    used:    of the last answer
    window:  tokens of the model's window, where somebody knows
    """
    bound = at_tokens(at, window)
    if used is None or bound is None:
        return None
    return used.input + used.output if used.input + used.output >= bound else None


def at_tokens(at: At, window: int | None) -> int | None:
    """The bound in tokens; None where there is none."""
    if at <= 0:
        return None
    if at > 1:
        return int(at)
    return None if window is None else int(window * at)
