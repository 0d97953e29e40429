"""When the same request may go out again by itself.

What a resend can do depends on the owner. Where nothing is kept, it is only a second try. On a
chain it can only fork. On a conversation it can say everything twice, so after a failure that
does not prove that nothing happened the owner's tail is read first. Once a piece of the answer
has been shown, nothing is sent again without the person.
"""

from dataclasses import dataclass
from enum import Enum

from convo.errors import NO_CONNECTION, ConvoError, KeyRefused, ModelFault, TryLater, Unreachable, Unreadable
from convo.history import Strategy


class Resend(Enum):
    NO = "no"
    YES = "yes"
    READ_FIRST = "read the owner's tail first"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to send again, and the evidence in words."""

    resend: Resend
    evidence: str


def may_resend(strategy: Strategy, failure: ConvoError, *, answering: bool) -> Verdict:
    """Decide over one failed attempt.

    answering:  a piece of the answer had already come
    """
    if answering:
        return Verdict(Resend.NO, "the answer had begun")
    if not isinstance(failure, TryLater | Unreachable):
        return Verdict(Resend.NO, "the same request would be refused again")
    if failure.code == NO_CONNECTION:
        return Verdict(Resend.NO, "there is nobody to send it to")
    if failure.code == "conversation_locked" or failure.status == 429:
        return Verdict(Resend.YES, "refused before anything was done")
    return AFTER_DOUBT[strategy]


AFTER_DOUBT = {
    Strategy.REPLAY: Verdict(Resend.YES, "the endpoint keeps nothing"),
    Strategy.SESSION: Verdict(Resend.YES, "the endpoint keeps nothing"),
    Strategy.CHAIN: Verdict(Resend.YES, "a second response would only be a fork"),
    Strategy.CONVERSATION: Verdict(Resend.READ_FIRST, "the endpoint may have taken it"),
}
"""By owner: what to do when the request may or may not have been carried out."""


UNASKED = (NO_CONNECTION, "model_not_found")


def never_asked(failure: ConvoError) -> bool:
    """Whether nobody was asked: there is no connection, no right to ask, no such model, or one that cannot."""
    return failure.code in UNASKED or isinstance(failure, KeyRefused | ModelFault | Unreadable)
