"""The RunState JSON of openai-agents: read, understood, decided on and written, label by label.

Read `reading` first: what is taken for a state and what is refused. `state` is the view on what was
read, `versions` says what each label means, `deciding` and `editing` change a document as its own
readers want it, `relabel` moves it to another label and says what is lost, `writing` is the one
writer and `signing` proves that nothing changed on the way. Each stands on small ones:

    a document   `text` (no further than JSON), `shape` (its keys), `paths` (its places), `nested` (states in it)
    a label      `version`
    a decision   `identity` (which call it is about), `records`, `lasting` (for good), `whose` (which agent)
    for people   `summary`

`taking` makes a run of convo's own out of a state, with `batch`, `told` (what was said) and `values`,
once `sendable` finds nothing that a server would refuse; `making` makes a state out of a run, with
`account`, `run_items`, `processed` and `totals`. Both know agents and tools and are named by whoever
needs them, so that to look at a state stays as light as reading JSON. Nothing here reads a file or
runs a tool.
"""

from convo.runstate.deciding import decided, named
from convo.runstate.editing import edited
from convo.runstate.reading import is_state, of, read
from convo.runstate.records import Verdict
from convo.runstate.relabel import relabelled
from convo.runstate.signing import signed, unsigned, verify
from convo.runstate.state import Decision, Pending, State
from convo.runstate.summary import pending, summary
from convo.runstate.version import Loss, Version
from convo.runstate.versions import LABELS, NEWEST, VERSIONS
from convo.runstate.writing import text

__all__ = [
    "LABELS",
    "NEWEST",
    "VERSIONS",
    "Decision",
    "Loss",
    "Pending",
    "State",
    "Verdict",
    "Version",
    "decided",
    "edited",
    "is_state",
    "named",
    "of",
    "pending",
    "read",
    "relabelled",
    "signed",
    "summary",
    "text",
    "unsigned",
    "verify",
]
