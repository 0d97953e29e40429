"""Handing over: the tools that do it, and what the next agent's model gets to see.

Read `offering` for the tools, `planning` for what applies under which owner, `nesting` for what is
summed up and what goes on as it is, `summary` for the text between the markers and the way back.
"""

from convo.handoffs.nesting import Mapper, Transcript, nested, passed_on
from convo.handoffs.offering import IGNORED, Offer, offers, tool_name, transferred
from convo.handoffs.planning import Habits, Plan, plan
from convo.handoffs.summary import MARKERS, Markers, summarise, unfold

__all__ = [
    "IGNORED",
    "MARKERS",
    "Habits",
    "Mapper",
    "Markers",
    "Offer",
    "Plan",
    "Transcript",
    "nested",
    "offers",
    "passed_on",
    "plan",
    "summarise",
    "tool_name",
    "transferred",
    "unfold",
]
