"""Who owns the conversation, and what the owner will put before the next request, in words."""

import json
from collections.abc import Mapping

from convo.history import OWNERS, Session
from convo.history.owner import EMBEDDED
from convo.items import Json
from convo.strategies import Held


def status(session: Session, held: Held, model: str) -> str:
    """The lines of /status."""
    owner = OWNERS[session.strategy]
    waiting = len(held.unacknowledged)
    rows = {
        "owner": f"{owner.words} (--{session.strategy})",
        "session": session.name or "(named after the first message)",
        "handle": session.handle or ("the session itself" if not owner.remembers else "(made by the first answer)"),
        "endpoint": str(session.scope),
        "model": model,
        "items": f"{len(held.path)}" + (f", of them {waiting} unacknowledged" if waiting else ""),
        "turn sends": "what the owner has not acknowledged" if owner.remembers else "the whole path",
    }
    return "\n".join(f"  {name:<11} {value}" for name, value in rows.items())


def next_request(held: Held, body: Mapping[str, Json], url: str) -> str:
    """The lines of /next: what the owner puts before it, set apart, then the body as it travels."""
    kept = held.path.place(held.mark) if held.remembers else 0
    items = "1 item" if kept == 1 else f"{kept} items"
    before = f"the owner puts {items} of {held.handle} before it" if kept else "nothing stands before it"
    here = url == EMBEDDED
    where = "to convo's own endpoint, in this process" if here else f"POST {url}/responses"
    travels = body if here else {**body, "stream": True}
    return f"{before}\n{where}\n{json.dumps(travels, indent=2, ensure_ascii=False)}"
