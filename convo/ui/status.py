"""Who owns the conversation, and where its head stands, in words."""

from convo.history import OWNERS, Session
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
