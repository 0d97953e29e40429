"""An answer that the owner gave and nobody heard, taken up as if it had been.

Our own endpoint's rows say which response it was. A remote conversation only lists its items, so
the answer gets a link without an id, usage or time: what was said is known, how it went is not.
"""

from collections.abc import Iterator

from convo.history import Link, Path, Session
from convo.items import Event, Item, is_output, is_user, kind


def unheard(path: Path, known: int, session: Session, *, link_id: str, model: str, at: float) -> Link | None:
    """The link of the answer that `path` ends with; None when it ends with a question.

    known:  how many nodes at the beginning of `path` were confirmed before
    at:     when it was found, seconds since 1970
    """
    saw = question(path)
    if len(saw) == len(path) or len(saw) <= known:
        return None
    return Link(
        id=link_id,
        saw=saw.head,
        sent=len(saw) - known,
        head=path.head,
        model=model,
        strategy=session.strategy,
        status="completed",
        created_at=at,
        parent=session.link,
        session=session.id,
        scope=session.scope,
        conversation_id=session.handle,
    )


def events(path: Path, link: Link | None) -> Iterator[Event]:
    """The events of the answer that `path` ends with."""
    answer = path.items[len(question(path)) :]
    for at, item in enumerate(answer):
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    known = link if link and not link.id.startswith("try_") else None
    response = {
        "id": known and known.id,
        "status": known.status if known else "completed",
        "output": list(answer),
        "usage": known and known.usage,
    }
    yield {"type": "response.completed", "response": response}


def question(path: Path) -> Path:
    """`path` up to and including the last thing that the client said: a user's message, an output, a verdict."""
    return path.first(max((at for at, item in enumerate(path.items, 1) if _asks(item)), default=0))


def _asks(item: Item) -> bool:
    return is_user(item) or is_output(item) or kind(item) == "mcp_approval_response"
