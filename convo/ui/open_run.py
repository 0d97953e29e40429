"""A run of agents that is open in a conversation, as its screens say it: what it waits for, and what goes on with it.

While it is open `convo chat` is refused there, so its command is no way on.
"""

from shlex import quote

from convo.history import Session
from convo.inspection.open_run import OpenRun


def stands(run: OpenRun) -> str:
    """What an open run waits for, in words."""
    if run.paused:
        return f"a run of agents waits for a decision on {', '.join(run.waits)}" if run.waits else PAUSED
    return f"a run of agents is under way in {run.by}" if run.by else LEFT


PAUSED = "a run of agents is paused"
LEFT = "a run of agents was left in the middle of its calls"


def way_on(session: Session, run: OpenRun | None) -> str:
    """The command that goes on with a session; "" while another process goes on with its run."""
    name = quote(session.name or session.id)
    if run is None:
        return f"convo chat --from {name}"
    return f"convo resume {name} --agent FILE.py:NAME" if run.paused or run.left else ""
