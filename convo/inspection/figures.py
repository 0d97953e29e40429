"""What one link was: what travelled, what the model saw, what it used, and the first words.

A tree has a line for each link, and programs want the same figures. What nobody recorded is None;
tokens that are counted here are an estimate.
"""

from dataclasses import dataclass

from convo.history import Link
from convo.inspection.places import Places
from convo.items import Item, first_words, is_assistant
from convo.tokens import Usage


@dataclass(frozen=True, slots=True)
class Figures:
    """One link in figures.

    sent:         items that travelled
    sent_tokens:  what they take, as an estimate; None when they are not known
    saw:          items that the model saw; None when they are not known
    used:         as the endpoint reported it; None when it did not
    said:         the first words of the last item that the model saw
    answered:     the first words of the answer, or of the error
    """

    sent: int
    sent_tokens: int | None
    saw: int | None
    used: Usage | None
    said: str
    answered: str

    @property
    def full(self) -> bool:
        """Whether the request held all that the model saw, rather than what its owner lacked."""
        return self.sent == self.saw


def figures(link: Link, places: Places) -> Figures:
    """The figures of `link`; what `places` does not hold is left open."""
    used = Usage.read(link.usage)
    if link.saw not in places:
        return Figures(link.sent, None, None, used, "", _error(link))
    return Figures(
        sent=link.sent,
        sent_tokens=places.tokens(link.saw) - places.tokens(places.start(link.saw, link.sent)),
        saw=places.depth(link.saw),
        used=used,
        said=_words(places.item(link.saw)),
        answered=_answer(link, places) or _error(link),
    )


def _answer(link: Link, places: Places) -> str:
    """A message says what an answer is about; where there is none, its first item does."""
    if link.head not in places:
        return ""
    output = [places.item(key) for key in places.back(link.head, places.depth(link.head) - places.depth(link.saw))]
    said = [item for item in output if item is not None]
    return _words(next(filter(is_assistant, said), said[0] if said else None))


def _words(item: Item | None) -> str:
    return "" if item is None else first_words(item)


def _error(link: Link) -> str:
    return str((link.error or {}).get("message") or "")
