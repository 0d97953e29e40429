"""What a compaction came to, in a few lines: how much it took and takes, and where the old history is."""

from collections.abc import Iterator
from shlex import quote

from convo.compaction import Way, Wish
from convo.errors import Usage
from convo.history import Session, Strategy
from convo.items import first_words, kind
from convo.tokens import Count
from convo.transfer.compacting import Compacted, Made
from convo.ui.labelled import Line, counted, labelled
from convo.ui.medium import Medium
from convo.ui.receipt import owner

MOST_DIGITS = 6

HOW = {
    Way.IN_PLACE: "by the conversation's endpoint, in its own list",
    Way.PREVIOUS: "by the chain's endpoint, from the response's id",
    Way.INPUT: "by the endpoint's own compaction",
    Way.SUMMARY: "by a summary that the model wrote",
}


def result(session: Session, done: Compacted, medium: Medium) -> str:
    """The screen of a compaction that stands."""
    return medium.drawn("\n".join(labelled(_rows(session, done), medium)))


def one_line(session: Session, done: Compacted) -> str:
    """The same in a line, for somebody who is chatting."""
    made = done.made
    folded = f"compacted {counted(len(made.plan.folded))}, {taken(made.before, done.after)}"
    before = [f"before it: {back(session, done.old)}"] if done.old else []
    return "; ".join([folded, *before, *made.notes])


def wished(words: str) -> tuple[Wish, bool]:
    """What follows /compact: a focus, --keep-last N, --yes. raises: Usage"""
    said, keep, yes = words.split(), 0, False
    focus: list[str] = []
    while said:
        word = said.pop(0)
        if word == "--keep-last":
            keep = _number(said.pop(0) if said else "")
        elif word == "--yes":
            yes = True
        else:
            focus.append(word)
    return Wish(focus=" ".join(focus) or None, keep=keep), yes


def _number(word: str) -> int:
    if not word.isdecimal() or len(word) > MOST_DIGITS:
        raise Usage("--keep-last takes a number of turns", hint="/compact --keep-last 2")
    return int(word)


def preview(made: Made, medium: Medium) -> str:
    """The screen of a window that was only made to be looked at."""
    rows = [("would take", taken(made.before, made.after)), *_made(made)]
    rows += [("window" if at == 0 else "", line) for at, line in enumerate(_shown(made))]
    return medium.drawn("\n".join(labelled(rows, medium)))


def taken(before: Count, after: Count) -> str:
    """Tokens before and after: "12,340 → 1,820 tokens, 85 % less"."""
    less = round(100 * (before.tokens - after.tokens) / before.tokens) if before.tokens else 0
    return f"{before} → {after} tokens, {less} % less"


def back(session: Session, old: str) -> str:
    """How the history before goes on."""
    flag = "--replay --from" if session.strategy is Strategy.REPLAY else "--from"
    return f"convo chat {flag} {quote(old)}"


def _rows(session: Session, done: Compacted) -> Iterator[Line]:
    yield "compacted", taken(done.made.before, done.after)
    yield from _made(done.made)
    if done.later:
        yield "later", f"{counted(done.later)} behind it, said meanwhile or not yet acknowledged"
    yield "goes on as", owner(session)
    yield "before", back(session, done.old) if done.old else "the items stay in the same list, before the compaction"


def _made(made: Made) -> Iterator[Line]:
    kept = f", {counted(len(made.plan.kept))} stay as they were said" if made.plan.kept else ""
    yield "folded", counted(len(made.plan.folded)) + kept
    yield "made", HOW[made.plan.way]


def _shown(made: Made) -> Iterator[str]:
    for item in made.window:
        yield f"{item.get('role') or kind(item)}: {first_words(item, 200)}"
