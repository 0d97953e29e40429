"""What the flags of `convo resume` decide on the calls of a run that convo itself goes on with.

Everything is looked at before anything is kept: a word that names nothing changes nothing. The calls
that are given in are those that wait and those that are decided and not performed yet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from convo.cli.choosing import ALL, chosen, kept_text, rank
from convo.errors import NotFound, Usage
from convo.run import Decided, Given
from convo.run.inbox import Waiting
from convo.ui.rewriting import in_an_editor


@dataclass(frozen=True, slots=True)
class Said:
    """The flags as they were typed; each word is a call's id, a tool's name or `all`.

    rerun, output:  about calls whose outcome is unknown; output is CALL=TEXT
    abort:          end the run
    """

    approve: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    edit: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    always: bool = False
    abort: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """What was typed behind the flags that speak of calls."""
        return (*self.approve, *self.reject, *self.edit, *self.rerun, *self.output)

    @property
    def anything(self) -> bool:
        return bool(self.words)


class Choice(NamedTuple):
    """What one flag says of one call."""

    what: str
    words: str | None = None


def events_of(said: Said, waiting: Sequence[Waiting]) -> list[Decided | Given]:
    """The decisions, in the order of the calls; an editor is opened for each that is to be edited.

    raises:  NotFound, Usage
    """
    return list(_events(said, choices_of(said, waiting), waiting))


def choices_of(said: Said, waiting: Sequence[Waiting]) -> dict[str, Choice]:
    """What is chosen, by call. raises: NotFound, Usage"""
    return chosen(one for word, what in _flags(said) for one in _named(word, what, waiting))


def kept_decisions(said: Said, waiting: Sequence[Waiting]) -> Iterator[str]:
    """Notes on the decisions that differ from what a name or `all` asks, and that stay as they are."""
    choices = choices_of(said, waiting)
    for call in waiting:
        if call.verdict is None or call.call_id in choices:
            continue
        asked = {what != "reject" for word, what in _flags(said) if _parts(word, what, waiting)[0] in (ALL, call.tool)}
        if asked - {call.verdict}:
            yield kept_text(call.tool, call.call_id, call.verdict)


def _flags(said: Said) -> Iterator[tuple[str, str]]:
    for what in ("approve", "reject", "edit", "rerun", "output"):
        for word in getattr(said, what):
            yield word, what


def _named(word: str, what: str, waiting: Sequence[Waiting]) -> Iterator[tuple[str, int, Choice]]:
    name, words = _parts(word, what, waiting)
    undecided = [call for call in waiting if call.verdict is None]
    meant = [call for call in undecided if what == "reject" or call.unknown == (what in ("rerun", "output"))]
    fits = [call for call in waiting if call.call_id == name] or [call for call in meant if name in (ALL, call.tool)]
    fits = fits or [call for call in undecided if name in (ALL, call.tool)]
    if not fits and not any(name in (ALL, call.tool) for call in waiting):
        ids = ", ".join(call.call_id for call in waiting)
        raise NotFound("pending call", name, hint=f"one of {ids}" if ids else "nothing waits in this run")
    for call in fits:
        _check(call, what)
        yield call.call_id, rank(name, call.call_id), Choice(what, words or ("" if what == "output" else None))


def _parts(word: str, what: str, waiting: Sequence[Waiting]) -> tuple[str, str | None]:
    """`CALL=WORDS` in its two parts; a call whose id has a sign of equality is still itself."""
    ids = [call.call_id for call in waiting]
    if what not in ("reject", "output") or (what == "reject" and word in ids):
        return word, None
    longest = max((one for one in ids if word.startswith(f"{one}=")), key=len, default=word.partition("=")[0])
    if what == "output" and "=" not in word.removeprefix(longest):
        raise Usage(f"--output {word!r} does not say what came of the call", hint="--output CALL=TEXT")
    return longest, word.removeprefix(longest).removeprefix("=")


def _check(call: Waiting, what: str) -> None:
    """raises: Usage  an answer to another question"""
    if call.unknown and what in ("approve", "edit"):
        raise Usage(
            f"{call.call_id} was started and its outcome is unknown",
            hint=f"--rerun {call.call_id}, --output {call.call_id}=TEXT, or --abort",
        )
    if not call.unknown and what in ("rerun", "output"):
        raise Usage(
            f"{call.call_id} was not started, so nothing came of it", hint=f"--approve or --reject {call.call_id}"
        )


def _events(said: Said, choices: dict[str, Choice], waiting: Sequence[Waiting]) -> Iterator[Decided | Given]:
    """One event a call."""
    for call in waiting:
        choice = choices.get(call.call_id)
        if choice is None:
            continue
        if choice.what == "output":
            yield Given(call.call_id, choice.words)
            continue
        arguments = in_an_editor(call.arguments) if choice.what == "edit" else None
        always = said.always and not call.unknown
        yield Decided(call.call_id, choice.what != "reject", choice.words, always, arguments)
