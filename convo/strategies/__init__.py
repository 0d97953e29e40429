"""Four owners: what each turn sends, and what a confirmed response changes.

Read `held` for what is decided over, `sending` for the table of the design as code, then
`reconciling` (what an owner may have taken although nobody told us), `retrying` (when the same
request may go out again), `branching` and `rewinding` (going back moves heads), `replacing`
(another history in place of this one), `newest` (less than all of it), `carrying` (what another
owner can be given) and `handles` (which owner a handle belongs to). All of it is plain functions
over frozen values.
"""

from convo.strategies.branching import retry, undo
from convo.strategies.handles import Wanted, at_turn, check_handle, kind_of, wanted
from convo.strategies.held import Held, Sent, answered, is_answer
from convo.strategies.reconciling import after_mark, reconcile
from convo.strategies.replacing import behind, fresh, replaced
from convo.strategies.retrying import Resend, Verdict, may_resend, never_asked
from convo.strategies.rewinding import rewind
from convo.strategies.sending import body, confirm, interrupt, send

__all__ = [
    "Held",
    "Resend",
    "Sent",
    "Verdict",
    "Wanted",
    "after_mark",
    "answered",
    "at_turn",
    "behind",
    "body",
    "check_handle",
    "confirm",
    "fresh",
    "interrupt",
    "is_answer",
    "kind_of",
    "may_resend",
    "never_asked",
    "reconcile",
    "replaced",
    "retry",
    "rewind",
    "send",
    "undo",
    "wanted",
]
