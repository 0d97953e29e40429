"""Asks a guardrail: it gets a copy of what it looks at, and says why that must not pass, or nothing."""

import copy

from convo.agents import Guardrail
from convo.engine.theirs import told_by
from convo.items import Json
from convo.run import Passed, Tripped
from convo.tools import Context

CODE = "guardrail_failed"


async def asked(guardrail: Guardrail, place: int, context: Context, said: Json) -> Passed | Tripped:
    """What a guardrail says of `said`. raises: RunFailed  it raised"""
    what = f"guardrail {guardrail.name!r}"
    reason = await told_by(what, CODE, guardrail.check, context, copy.deepcopy(said), thread=True)
    return Passed(place) if reason is None else Tripped(place, str(reason))
