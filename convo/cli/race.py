"""`convo race`: run the same turns with all four strategies and compare them.

stderr shows progress in a terminal; --jsonl prints each turn as it ends. Exit code 1: a strategy failed.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from convo.chat.files import read_text_file
from convo.chat.session_record import ChatDeps
from convo.cli.deps import (
    choose_session_model,
    endpoint_session,
    make_request_options,
    open_configured_store,
    print_ignored_settings,
)
from convo.cli.input import PIPE_ARGUMENT, check_message_words, has_piped_input, join_message_texts, read_piped_input
from convo.cli.output import print_event, print_json, print_line, print_notice
from convo.cli.progress import show_progress
from convo.config.loader import SettingFlags, load_settings
from convo.config.sections import Price
from convo.errors import InvalidUsage
from convo.history.records import Strategy
from convo.report import FLAT, Count, Keywords
from convo.runtime import ReportProgress, SystemClock, random_id, temporary_folder
from convo.terminal.answer import run_interruptibly
from convo.terminal.report_views import render_race
from convo.terminal.terminal import detect_display, format_count
from convo.transfer.race import (
    RACE_ORDER,
    RaceObserver,
    RacePlan,
    RaceResult,
    RaceTurn,
    run_race,
)
from convo.usage.model_info import find_price

DEFAULT_TURNS = (
    "Name a colour, in one word.",
    "Name another one, in one word.",
    "Which of them did you name first?",
    "Say both in one short sentence.",
)
"""The turns if none are given."""

RACE_EXAMPLE = 'convo race "hello" "and then?"'


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """The arguments of one `convo race`."""

    turns: tuple[str, ...] = ()
    script: Path | None = None
    model: str | None = None
    system: str | None = None
    keep_sessions: bool = False
    as_json: bool = False
    as_jsonl: bool = False
    config: Path | None = None


async def run_and_print_race(options: RaceOptions, turns: Sequence[str]) -> int:
    """Run one race and print it; return 1 if a strategy failed, else 0."""
    settings, choice = choose_session_model(load_settings(options.config, SettingFlags(model=options.model)), None)
    with nullcontext(Path.cwd()) if options.keep_sessions else temporary_folder("convo-race-") as folder:
        async with (
            open_configured_store(settings) as store,
            endpoint_session(choice, settings, store) as endpoint,
        ):
            request_options = make_request_options(choice, settings, instructions=options.system, parameters={})
            print_ignored_settings(request_options)
            plan = RacePlan(
                tuple(turns),
                request_options,
                ChatDeps(store, endpoint, SystemClock(), random_id),
                folder,
                options.keep_sessions,
            )
            price = find_price(request_options.model, settings.prices)
            # Four turns are sixteen requests, each with a history that grows.
            if choice.provider.key_env or choice.provider.token_env:
                count = format_count(len(turns) * len(RACE_ORDER), "paid request")
                print_notice(f"sending {count} to {request_options.model}")
            with show_progress("race", settings) as report:
                results = await run_interruptibly(_run_with_events(plan, price, report, as_events=options.as_jsonl))
    if options.as_json:
        owners = [_build_owner_report(result, price) for result in results]
        print_json(RaceReport(request_options.model, turns, owners))
    elif not options.as_jsonl:
        print_line(render_race(results, price, detect_display(sys.stdout, os.environ)))
    return 1 if any(result.error for result in results) else 0


def read_race_turns(options: RaceOptions) -> tuple[str, ...]:
    """Return the turns; piped input follows the first one after an empty line, or replaces `-`.

    Raises InvalidUsage for words together with a file or for an empty turn, and Unreadable.
    """
    if options.turns and options.script:
        raise InvalidUsage("turns as arguments and --file cannot be used together", hint="use one of them")
    check_message_words(options.turns, example=RACE_EXAMPLE)
    script = str(options.script) if options.script else None
    turns = options.turns
    if script:
        turns = tuple(line.strip() for line in read_text_file(script).splitlines() if line.strip())
    if PIPE_ARGUMENT in options.turns:
        piped = read_piped_input()
        turns = tuple(piped if turn == PIPE_ARGUMENT else turn for turn in turns)
    elif has_piped_input((script,)):
        piped = read_piped_input()
        turns = (join_message_texts(turns[0], piped), *turns[1:]) if turns else (piped,) if piped.strip() else ()
    if not (turns or script):
        turns = DEFAULT_TURNS
    if not turns or not all(turn.strip() for turn in turns):
        raise InvalidUsage("a turn is empty", hint=RACE_EXAMPLE)
    return turns


async def _run_with_events(
    plan: RacePlan, price: Price | None, report: ReportProgress, *, as_events: bool
) -> list[RaceResult]:
    """Run the race and report its turns; `as_events`: each turn is printed as it ends."""

    def report_start(strategy: Strategy, number: int) -> None:
        total = len(plan.messages) * len(RACE_ORDER)
        report(str(strategy), RACE_ORDER.index(strategy) * len(plan.messages) + number, total)

    def print_turn(strategy: Strategy, number: int, turn: RaceTurn) -> None:
        if as_events:
            print_event(RaceTurnEvent("convo.turn", strategy, number, _build_turn_report(turn)))

    def print_result(result: RaceResult) -> None:
        if as_events:
            print_event(RaceOwnerEvent("convo.owner", _build_owner_report(result, price)))

    return await run_race(plan, RaceObserver(report_start, print_turn, print_result))


class RaceTurnReport(NamedTuple):
    """The figures of a turn; null: not reported.

    bytes:  total size of the request bodies
    items:  number of sent items
    """

    bytes: Count
    items: Count
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    first_token_s: float | None
    seconds: float


class RaceErrorReport(NamedTuple):
    """The error that ended the turns of a strategy early."""

    code: str
    message: str


class RaceOwnerReport(NamedTuple):
    """The totals of a strategy; null: not reported.

    strategy:  the owner of the state
    session:   with --keep: name of the session
    bytes:     total size of the request bodies
    items:     number of sent items
    """

    strategy: Strategy
    session: str | None
    bytes: Count
    items: Count
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    first_token_s: float | None
    seconds: float
    error: RaceErrorReport | None
    turns: Sequence[RaceTurnReport]


class RaceReport(NamedTuple):
    """The figures of all strategies."""

    model: str
    turns: Sequence[str]
    owners: Sequence[RaceOwnerReport]


class RaceTurnEvent(NamedTuple):
    """A finished turn.

    turn:  number of the turn, from 1
    """

    type: Literal["convo.turn"]
    strategy: Strategy
    turn: Annotated[int, Keywords(minimum=1)]
    figures: Annotated[RaceTurnReport, FLAT]


class RaceOwnerEvent(NamedTuple):
    """A strategy that has finished, with an error if it ended early."""

    type: Literal["convo.owner"]
    totals: Annotated[RaceOwnerReport, FLAT]


def _build_owner_report(result: RaceResult, price: Price | None) -> RaceOwnerReport:
    usage = result.usage
    return RaceOwnerReport(
        result.strategy,
        result.session,
        result.request_bytes,
        result.sent_count,
        usage.input_tokens if usage else None,
        usage.cached_tokens if usage else None,
        usage.output_tokens if usage else None,
        usage.reasoning_tokens if usage else None,
        result.cost_usd(price),
        result.first_token_s,
        result.duration_s,
        RaceErrorReport(**result.error) if result.error else None,
        [_build_turn_report(turn) for turn in result.turns],
    )


def _build_turn_report(turn: RaceTurn) -> RaceTurnReport:
    usage = turn.usage
    return RaceTurnReport(
        turn.request_bytes,
        turn.sent_count,
        usage.input_tokens if usage else None,
        usage.cached_tokens if usage else None,
        usage.output_tokens if usage else None,
        turn.first_token_s,
        turn.duration_s,
    )
