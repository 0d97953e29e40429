"""What `convo race` does: read the turns, let the owners run them, and print the table."""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from convo.cli.piped_input import DASH, append_text, check, has_piped_input, piped_input
from convo.cli.saying import say, say_json
from convo.cli.wiring import asking_of, chosen, endpoint_for, store_of
from convo.clock import SystemClock
from convo.config import Flags, Price, read, resolve
from convo.engine.edges import Edges
from convo.engine.named_file import text_of
from convo.errors import Usage
from convo.history import Strategy
from convo.ids import random_id
from convo.items import Json
from convo.temporary import temporary_folder
from convo.tokens import price_of
from convo.transfer.racing import ORDER, Course, Lane, Lap, Watch, race
from convo.ui.answering import waited
from convo.ui.medium import medium_of
from convo.ui.raced import progress, screen

TURNS = (
    "Name a colour, in one word.",
    "Name another one, in one word.",
    "Which of them did you name first?",
    "Say both in one short sentence.",
)
"""What is said where nobody says what."""

EXAMPLE = 'convo race "hello" "and then?"'


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one `convo race`."""

    turns: tuple[str, ...] = ()
    script: Path | None = None
    model: str | None = None
    system: str | None = None
    keep: bool = False
    as_json: bool = False
    as_jsonl: bool = False
    config: Path | None = None


async def race_all(asked: Asked, turns: Sequence[str]) -> int:
    """Carry out one race and print it; 1 when an owner did not come to the end. raises: as its parts do"""
    sources = read(asked.config, Flags(model=asked.model))
    settings, choice = chosen(sources, None)
    with nullcontext(Path.cwd()) if asked.keep else temporary_folder("convo-race-") as folder:
        async with store_of(resolve(sources)) as store, endpoint_for(choice, settings, store) as endpoint:
            asking = asking_of(choice, instructions=asked.system, parameters={})
            course = Course(tuple(turns), asking, Edges(store, endpoint, SystemClock(), random_id), folder, asked.keep)
            price = price_of(asking.model, settings.prices)
            lanes = await waited(_run(course, price, told=asked.as_jsonl))
    if asked.as_json:
        say_json(as_object(asking.model, turns, lanes, price))
    elif not asked.as_jsonl:
        say(screen(lanes, price, medium_of(sys.stdout, os.environ)))
    return 1 if any(lane.error for lane in lanes) else 0


def turns_of(asked: Asked) -> tuple[str, ...]:
    """The turns, with the piped input below the first one or where `-` stands.

    raises:  Usage  words and a file together, or an empty turn;  Unreadable
    """
    if asked.turns and asked.script:
        raise Usage("the turns are given twice: as words and in a file", hint="use one of them")
    check(asked.turns, example=EXAMPLE)
    script = str(asked.script) if asked.script else None
    turns = asked.turns
    if script:
        turns = tuple(line.strip() for line in text_of(script).splitlines() if line.strip())
    if DASH in asked.turns:
        piped = piped_input()
        turns = tuple(piped if turn == DASH else turn for turn in turns)
    elif has_piped_input((script,)):
        piped = piped_input()
        turns = (append_text(turns[0], piped), *turns[1:]) if turns else (piped,) if piped.strip() else ()
    if not (turns or script):
        turns = TURNS
    if not turns or not all(turn.strip() for turn in turns):
        raise Usage("a turn is empty", hint=EXAMPLE)
    return turns


async def _run(course: Course, price: Price | None, *, told: bool) -> list[Lane]:
    """The race, with a bar on a terminal's stderr while it runs; `told`: what each turn took is printed as it ends."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    every = len(course.turns) * len(ORDER)

    def begins(strategy: Strategy, number: int) -> None:
        if shown:
            done = ORDER.index(strategy) * len(course.turns) + number
            sys.stderr.write(f"\r\x1b[K{progress(done, every, strategy)}")
            sys.stderr.flush()

    def took(strategy: Strategy, number: int, lap: Lap) -> None:
        if told:
            _tell("convo.turn", {"strategy": str(strategy), "turn": number, **_as_turn(lap)})

    def ended(lane: Lane) -> None:
        if told:
            _tell("convo.owner", _as_owner(lane, price))

    try:
        return await race(course, Watch(begins, took, ended))
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _tell(kind: str, figures: dict[str, Json]) -> None:
    """A line for a program that reads along."""
    say_json({"type": kind, **figures})
    sys.stdout.flush()


def as_object(model: str, turns: Sequence[str], lanes: Sequence[Lane], price: Price | None) -> dict[str, Json]:
    """The object of `convo race --json`: bytes of the bodies, seconds, USD; null for what nobody reported."""
    return {"model": model, "turns": list(turns), "owners": [_as_owner(lane, price) for lane in lanes]}


def _as_owner(lane: Lane, price: Price | None) -> dict[str, Json]:
    used = lane.used
    return {
        "strategy": str(lane.strategy),
        "session": lane.session,
        "bytes": lane.bytes,
        "items": lane.items,
        "input_tokens": used.input if used else None,
        "cached_tokens": used.cached if used else None,
        "output_tokens": used.output if used else None,
        "reasoning_tokens": used.reasoning if used else None,
        "cost_usd": lane.cost_usd(price),
        "first_token_s": lane.first_token_s,
        "seconds": lane.seconds,
        "error": dict(lane.error) if lane.error else None,
        "turns": [_as_turn(lap) for lap in lane.laps],
    }


def _as_turn(lap: Lap) -> dict[str, Json]:
    return {
        "bytes": lap.bytes,
        "items": lap.items,
        "input_tokens": lap.used.input if lap.used else None,
        "cached_tokens": lap.used.cached if lap.used else None,
        "output_tokens": lap.used.output if lap.used else None,
        "first_token_s": lap.first_token_s,
        "seconds": lap.seconds,
    }
