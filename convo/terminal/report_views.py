"""Reports of `convo race`, `convert`, `compact`, `lint` and `repair`."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from convo.compaction.planning import CompactionMethod, CompactionOptions
from convo.config.sections import Price
from convo.errors import InvalidUsage
from convo.history.items import item_preview, item_type
from convo.history.records import STRATEGY_INFO, Session, Strategy
from convo.lint.model import RepairChange, Severity
from convo.lint.repair import RepairResult
from convo.lint.report import LintReport
from convo.strategies.transfer import TransferLoss
from convo.terminal.status_line import format_owner_handle
from convo.terminal.terminal import (
    Column,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    fit_columns,
    format_count,
    key_value_lines,
    pad_text,
    table_lines,
    text_width,
)
from convo.transfer.compact import CompactionResult, PreparedCompaction
from convo.transfer.race import RaceResult
from convo.usage.counting import TokenCount

NO_VALUE = "-"

MAX_BYTE_BAR_COLUMNS = 40
"""Columns of the longest bar, space permitting."""

BYTE_BAR_LABEL_COLUMNS = 26
"""Columns of a strategy's name and its number beside the bar."""


def render_race(lanes: Sequence[RaceResult], price: Price | None, medium: DisplayOptions) -> str:
    """Render the table, then the bytes that each strategy sent as bars."""
    table = fit_columns([*_race_columns(lanes, price)], medium)
    shown = [*table_lines(table, medium), "", "bytes sent", *_byte_bars(lanes, medium)]
    shown += [f"{lane.strategy}: {lane.error['message']}" for lane in lanes if lane.error]
    return medium.drawn("\n".join(shown))


def format_race_progress(done: int, of: int, strategy: Strategy, room: int = 24) -> str:
    """Format the progress of a race as one line."""
    filled = room * done // of if of else room
    return f"[{'#' * filled}{' ' * (room - filled)}] {done}/{of} {strategy}"


def _race_columns(lanes: Sequence[RaceResult], price: Price | None) -> Iterator[Column]:
    used = [lane.used for lane in lanes]
    yield Column("owner", [str(lane.strategy) for lane in lanes], style="bold")
    yield Column("turns", [str(len(lane.laps)) for lane in lanes], right=True, goes=0)
    yield Column("bytes", [f"{lane.bytes:,}" for lane in lanes], right=True)
    yield Column("items", [f"{lane.items:,}" for lane in lanes], right=True)
    yield Column("in", [f"{one.input:,}" if one else NO_VALUE for one in used], right=True)
    yield Column("cached", [f"{one.cached:,}" if one else NO_VALUE for one in used], right=True, goes=2)
    yield Column("out", [f"{one.output:,}" if one else NO_VALUE for one in used], right=True)
    if price:
        yield Column("cost", [_format_usd(lane.cost_usd(price)) for lane in lanes], right=True)
    yield Column("first", [_format_seconds(lane.first_token_s) for lane in lanes], right=True, goes=1)
    yield Column("total", [_format_seconds(lane.seconds) for lane in lanes], right=True)
    yield Column("ended", [lane.error["code"] if lane.error else "well" for lane in lanes])


def _format_usd(cost: float | None) -> str:
    return NO_VALUE if cost is None else f"${cost:,.4f}"


def _format_seconds(seconds: float | None) -> str:
    return NO_VALUE if seconds is None else f"{seconds:.2f} s"


def _byte_bars(lanes: Sequence[RaceResult], medium: DisplayOptions) -> Iterator[str]:
    most = max((lane.bytes for lane in lanes), default=0)
    room = (
        MAX_BYTE_BAR_COLUMNS
        if medium.width is None
        else max(1, min(MAX_BYTE_BAR_COLUMNS, medium.width - BYTE_BAR_LABEL_COLUMNS))
    )
    sign = "█" if medium.boxes else "#"
    for lane in lanes:
        size = max(1, round(room * lane.bytes / most)) if lane.bytes else 0
        yield f"{lane.strategy:<12}  {sign * size} {lane.bytes:,}"


MAX_NAMED_POSITIONS = 6
"""Item numbers of one loss that are listed; the others are counted."""


def render_losses(losses: Sequence[TransferLoss], notes: Sequence[str], medium: DisplayOptions) -> str:
    """Render the losses of a transfer, one line for each kind."""
    rows = [(f"{loss.effect}", f"{loss.code}: {loss.why} ({format_positions(loss)})") for loss in losses]
    rows += [("note", note) for note in notes]
    return medium.drawn("\n".join(key_value_lines(rows or [("losses", "everything goes over as it is")], medium)))


def format_positions(loss: TransferLoss) -> str:
    """Format the item numbers of a loss: "items 3, 5 and 9", "items 1, 2, 3, 4, 5, 6 and 20 more"."""
    first, more = [str(at) for at in loss.places[:MAX_NAMED_POSITIONS]], len(loss.places) - MAX_NAMED_POSITIONS
    if len(loss.places) == 1:
        return f"item {first[0]}"
    last = f"{more} more" if more > 0 else first.pop()
    return f"items {', '.join(first)} and {last}"


def render_conversion(rows: Iterator[KeyValue] | Sequence[KeyValue], medium: DisplayOptions) -> str:
    return medium.drawn("\n".join(key_value_lines(list(rows), medium)))


def new_session_rows(name: str, strategy: Strategy, handle: str | None, items: int, waiting: int) -> Iterator[KeyValue]:
    """Yield the properties of a new session."""
    owner = STRATEGY_INFO[strategy]
    yield "session", name
    yield "owner", f"{owner.words} (--{strategy})"
    if handle:
        yield "handle", handle
    elif owner.remembers:
        yield "handle", "none yet: the first turn makes it, and sends everything"
    yield "items", format_count(items) + (f", of them {waiting} unacknowledged" if waiting else "")


MAX_COUNT_DIGITS = 6

COMPACTION_METHOD_TEXTS = {
    CompactionMethod.IN_PLACE: "by the conversation's endpoint, in its own list",
    CompactionMethod.PREVIOUS: "by the chain's endpoint, from the response's id",
    CompactionMethod.INPUT: "by the endpoint's own compaction",
    CompactionMethod.SUMMARY: "by a summary that the model wrote",
}


def render_compaction(session: Session, done: CompactionResult, medium: DisplayOptions) -> str:
    """Render the result of a compaction as a screen."""
    return medium.drawn("\n".join(key_value_lines(_compaction_rows(session, done), medium)))


def format_compaction(session: Session, done: CompactionResult) -> str:
    """Format the result of a compaction as one line, for an interactive chat."""
    made = done.made
    folded = f"compacted {format_count(len(made.plan.folded))}, {format_token_reduction(made.before, done.after)}"
    before = [f"before it: {format_old_history_command(session, done.old)}"] if done.old else []
    return "; ".join([folded, *before, *made.notes])


def parse_compact_arguments(words: str) -> tuple[CompactionOptions, bool]:
    """Parse the arguments of /compact: a focus, --keep-last N, --yes. Raises InvalidUsage."""
    said, keep, yes = words.split(), 0, False
    focus: list[str] = []
    while said:
        word = said.pop(0)
        if word == "--keep-last":
            keep = _parse_turn_count(said.pop(0) if said else "")
        elif word == "--yes":
            yes = True
        else:
            focus.append(word)
    return CompactionOptions(focus=" ".join(focus) or None, keep=keep), yes


def _parse_turn_count(word: str) -> int:
    if not word.isdecimal() or len(word) > MAX_COUNT_DIGITS:
        raise InvalidUsage("--keep-last takes a number of turns", hint="/compact --keep-last 2")
    return int(word)


def render_compaction_preview(made: PreparedCompaction, medium: DisplayOptions) -> str:
    """Render a compaction that was prepared but not applied as a screen."""
    rows = [("would take", format_token_reduction(made.before, made.after)), *_prepared_rows(made)]
    rows += [("window" if at == 0 else "", line) for at, line in enumerate(_replacement_lines(made))]
    return medium.drawn("\n".join(key_value_lines(rows, medium)))


def format_token_reduction(before: TokenCount, after: TokenCount) -> str:
    """Format the tokens before and after: "12,340 → 1,820 tokens, 85 % less"."""
    less = round(100 * (before.tokens - after.tokens) / before.tokens) if before.tokens else 0
    return f"{before} → {after} tokens, {less} % less"


def format_old_history_command(session: Session, old: str) -> str:
    """Return the command that continues the history from before the compaction."""
    flag = "--replay --from" if session.strategy is Strategy.REPLAY else "--from"
    return f"convo chat {flag} {quote(old)}"


def _compaction_rows(session: Session, done: CompactionResult) -> Iterator[KeyValue]:
    yield "compacted", format_token_reduction(done.made.before, done.after)
    yield from _prepared_rows(done.made)
    if done.later:
        yield "later", f"{format_count(done.later)} behind it, said meanwhile or not yet acknowledged"
    yield "goes on as", format_owner_handle(session)
    yield (
        "before",
        format_old_history_command(session, done.old)
        if done.old
        else "the items stay in the same list, before the compaction",
    )


def _prepared_rows(made: PreparedCompaction) -> Iterator[KeyValue]:
    kept = f", {format_count(len(made.plan.kept))} stay as they were said" if made.plan.kept else ""
    yield "folded", format_count(len(made.plan.folded)) + kept
    yield "made", COMPACTION_METHOD_TEXTS[made.plan.way]


def _replacement_lines(made: PreparedCompaction) -> Iterator[str]:
    for item in made.window:
        yield f"{item.get('role') or item_type(item)}: {item_preview(item, 200)}"


SEVERITY_STYLES = {Severity.ERROR: "bad", Severity.WARNING: "id"}


def render_lint_report(report: LintReport, medium: DisplayOptions) -> str:
    """Render one report as a screen, without the last line break."""
    lines = [f"{medium.paint(escape_control_chars(report.handle), 'bold')}: {_summarize_findings(report)}"]
    places = [_finding_location(report, at) for at in range(len(report.findings))]
    wide = max(map(text_width, places), default=0)
    for one, place in zip(report.findings, places, strict=True):
        severity = medium.paint(f"{one.severity:<7}", SEVERITY_STYLES[one.severity])
        lines.append(
            f"  {pad_text(place, wide)}  {severity}  {escape_control_chars(f'{one.code}: {one.fault.message}')}"
        )
    lines += [f"  {escape_control_chars(f'{code}: {why}')}" for code, why in report.open]
    if report.findings:
        lines.append(f"  try: convo lint --explain {report.findings[0].code}")
    return medium.drawn("\n".join(lines))


def render_repair(
    name: str, made: RepairResult | None, places: Sequence[str], medium: DisplayOptions, *, kept: bool = True
) -> str:
    """Render one repair as a screen, without the last line break; `repair` is None if there was nothing to fix."""
    if made is None:
        return "nothing to mend, so nothing was made"
    owner = STRATEGY_INFO[made.view.strategy].words
    head = f"{medium.paint(escape_control_chars(name), 'bold')}: {format_count(len(made.view.items))}, held by {owner}"
    lines = [head if kept else f"{head} (not made)"]
    wide = max((text_width(_change_location(one, places)) for one in made.changes), default=0)
    for one in made.changes:
        why = f"{one.why} [{one.code}]" if one.code else one.why
        lines.append(f"  {pad_text(_change_location(one, places), wide)}  {one.what:<12}  {escape_control_chars(why)}")
    return medium.drawn("\n".join(lines))


def _summarize_findings(report: LintReport) -> str:
    counts = [format_count(report.errors, "error"), format_count(report.warnings, "warning")]
    told = ", ".join(words for words, number in zip(counts, (report.errors, report.warnings), strict=True) if number)
    return f"{told or 'nothing found'} in {format_count(len(report.view.items))}"


def _finding_location(report: LintReport, at: int) -> str:
    one = report.findings[at]
    line = report.line(one)
    path = one.fault.link if one.fault.at is None and one.fault.link else report.path(one)
    return escape_control_chars(f"{report.handle}:{line} {path}" if line else path)


def _change_location(one: RepairChange, places: Sequence[str]) -> str:
    return "" if one.at is None else escape_control_chars(places[one.at])


class CheckLevel(StrEnum):
    """Result level of a check: an error prevents something from working, a warning may cause a surprise later."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


LEVEL_STYLES = {CheckLevel.WARNING: "bold", CheckLevel.FAULT: "bad"}
"""Style of the name of a check that is not ok."""


class CheckResult(NamedTuple):
    """Result of one check: one sentence, and the next step if there is one."""

    level: CheckLevel
    found: str
    next: str = ""


class CheckReport(NamedTuple):
    """The name of a check and its result."""

    name: str
    finding: CheckResult


def make_ok_result(found: str, next_step: str = "") -> CheckResult:
    return CheckResult(CheckLevel.OK, found, next_step)


def make_warning_result(found: str, next_step: str) -> CheckResult:
    return CheckResult(CheckLevel.WARNING, found, next_step)


def make_error_result(found: str, next_step: str) -> CheckResult:
    return CheckResult(CheckLevel.FAULT, found, next_step)


def render_checks(reports: Sequence[CheckReport], medium: DisplayOptions) -> str:
    """Render all checks in their order; a result that is not ok begins with its level."""
    rows = []
    for name, (level, found, next_step) in reports:
        rows.append((name, found if level is CheckLevel.OK else f"{level}: {found}"))
        rows += [("", f"try: {next_step}")] if next_step else []
    styles = {name: LEVEL_STYLES[finding.level] for name, finding in reports if finding.level in LEVEL_STYLES}
    return medium.drawn("\n".join(key_value_lines(rows, medium, styles)))


def summarize_checks(reports: Sequence[CheckReport]) -> str:
    """Count the errors and the warnings, in one line."""
    many = {level: sum(report.finding.level is level for report in reports) for level in CheckLevel}
    said = [format_count(many[level], level) for level in (CheckLevel.FAULT, CheckLevel.WARNING) if many[level]]
    return " and ".join(said) or "nothing is wrong"
