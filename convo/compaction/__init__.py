"""Making a history smaller without losing what the next turn needs.

Read `cutting` first: where a history may be cut at all. `truncating` leaves whole turns out of what a
model is shown, `folding` decides what a summary takes the place of, `summary` is what the model is
asked for and what its words look like afterwards, `sealed` is the form in which all of it travels as
one item, and `view` is a history as a model sees it once that item is opened again. `planning` decides
how a whole conversation is compacted, by its owner, and `due` when that is time.
"""

from convo.compaction.cutting import cuts, is_instruction, turns
from convo.compaction.due import At, due
from convo.compaction.folding import Fold, fold
from convo.compaction.planning import Mode, Plan, Standing, Way, Wish, instead, plan, windows
from convo.compaction.sealed import Sealed, dumps, loads, short
from convo.compaction.summary import Summariser, is_summary, stands_for, summariser, summary_in
from convo.compaction.truncating import last_turn, within
from convo.compaction.view import Open, covered, last_compaction, opened, seen

__all__ = [
    "At",
    "Fold",
    "Mode",
    "Open",
    "Plan",
    "Sealed",
    "Standing",
    "Summariser",
    "Way",
    "Wish",
    "covered",
    "cuts",
    "due",
    "dumps",
    "fold",
    "instead",
    "is_instruction",
    "is_summary",
    "last_compaction",
    "last_turn",
    "loads",
    "opened",
    "plan",
    "seen",
    "short",
    "stands_for",
    "summariser",
    "summary_in",
    "turns",
    "windows",
    "within",
]
