"""The routes about the server itself: what can be asked for, and whether it can be asked."""

from convo.errors import ConvoError
from convo.gateway import refusals
from convo.gateway.asked import Answer, Asked, Plain
from convo.gateway.metrics import FORM


async def models(asked: Asked) -> Answer:
    return {"object": "list", "data": list(await asked.service.models())}


async def model(asked: Asked) -> Answer:
    wanted = asked.ids["model"]
    for known in await asked.service.models():
        if known["id"] == wanted:
            return known
    raise refusals.no_model(wanted)


async def healthz(asked: Asked) -> Answer:
    """It runs; nothing else is asked."""
    return {"status": "ok"}


async def readyz(asked: Asked) -> Answer:
    """A request would be answered now. raises: TryLater  it would not, whatever the reason"""
    if asked.ending:
        raise refusals.ending()
    try:
        await asked.service.check()
    except ConvoError as fault:
        raise refusals.not_ready() from fault
    return {"status": "ready"}


async def metrics(asked: Asked) -> Answer:
    """The figures of the whole server without keys or with an admin's key, else those of the key's own name."""
    return Plain(await asked.figures(), FORM)
