"""Reports of `convo race`, `convert`, `compact`, `lint` and `repair`."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NamedTuple

from convo.compaction.planning import CompactionMethod, CompactionOptions
from convo.compaction.window import turn_starts
from convo.config.sections import Price
from convo.errors import InvalidUsage
from convo.history.items import item_preview, item_type
from convo.history.records import Session, Strategy
from convo.lint.model import RepairChange, Severity
from convo.report import FLAT, HIDDEN, Wire
from convo.strategies.conversion import TransferLoss
from convo.strategies.strategy import STRATEGIES
from convo.terminal.status_line import format_cost, format_owner_handle
from convo.terminal.statuses import DONE, FAILED, WARNING, Status, format_line_start, format_sign, status_column
from convo.terminal.tables import Column, render_bar, render_table
from convo.terminal.terminal import (
    LABEL_INDENT,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    format_count,
    key_value_lines,
    pad_text,
    render_key_values,
    text_width,
    truncate_text,
    wrap_sentence,
)
from convo.usage.counting import TokenCount

if TYPE_CHECKING:  # most commands show a report without racing, compacting or repairing
    from convo.lint.repair import RepairResult
    from convo.lint.report import LintReport
    from convo.transfer.compact import CompactionResult, PreparedCompaction
    from convo.transfer.race import RaceResult

NO_VALUE = "-"

MAX_BYTE_BAR_COLUMNS = 40
"""Columns of the longest bar, space permitting."""

BYTE_BAR_LABEL_COLUMNS = 26
"""Columns of a strategy's name and its number beside the bar."""


def render_race(results: "Sequence[RaceResult]", price: Price | None, display: DisplayOptions) -> str:
    """Render the table, then the bytes that each strategy sent as bars; on a terminal also a comparison."""
    table = render_table([*_race_columns(results, price, display)], display)
    lines = [table, "", "bytes sent", *_byte_bars(results, display)]
    lines += [
        display.translate_box_chars(format_line_start(FAILED, display))
        + f"{result.strategy}: {result.error['message']}"
        for result in results
        if result.error
    ]
    if display.width is not None:
        lines += _comparison_lines(results, price, display)
    return display.translate_box_chars("\n".join(lines))


def _comparison_lines(results: "Sequence[RaceResult]", price: Price | None, display: DisplayOptions) -> Iterator[str]:
    """Yield the best strategies: by cost, by bytes sent and by duration. Failed ones are not compared."""
    finished = [result for result in results if result.error is None]
    if len(finished) < MIN_COMPARED_RESULTS:
        return
    costs = [result.cost_usd(price) for result in finished]
    tokens = [result.usage.input_tokens if result.usage else None for result in finished]
    rows = []
    if price and None not in costs:
        rows.append(("cheapest", _compare(finished, costs, lambda cost: "".join(format_cost(cost)))))
    else:
        rows.append(("cheapest", "unknown without a price" if price is None else "unknown: tokens were not reported"))
        if None not in tokens:
            rows.append(("fewest input tokens", _compare(finished, tokens, lambda number: f"{number:,.0f}")))
    rows.append(
        ("fewest bytes", _compare(finished, [result.request_bytes for result in finished], lambda size: f"{size:,.0f}"))
    )
    rows.append(("fastest", _compare(finished, [result.duration_s for result in finished], _format_seconds)))
    yield ""
    yield from key_value_lines(rows, display, {"cheapest": "bold"})


MIN_COMPARED_RESULTS = 2


def _compare(
    results: "Sequence[RaceResult]", figures: Sequence[float | None], format_figure: Callable[[float], str]
) -> str:
    """Name the strategies with the lowest figure, and how much lower it is than the highest."""
    known = [figure for figure in figures if figure is not None]
    lowest, highest = min(known), max(known)
    names = [str(result.strategy) for result, figure in zip(results, figures, strict=True) if figure == lowest]
    if len(names) == len(results):
        return f"all equal, {format_figure(lowest)}"
    highest_names = [str(result.strategy) for result, figure in zip(results, figures, strict=True) if figure == highest]
    percent = round(100 * (highest - lowest) / highest)
    return f"{' and '.join(names)}, {format_figure(lowest)}: {percent} % less than {' and '.join(highest_names)}"


def _race_columns(results: "Sequence[RaceResult]", price: Price | None, display: DisplayOptions) -> Iterator[Column]:
    usages = [result.usage for result in results]
    yield Column("owner", [str(result.strategy) for result in results], style="bold")
    yield Column("turns", [str(len(result.turns)) for result in results], align_right=True, drop_order=0)
    yield Column("bytes", [f"{result.request_bytes:,}" for result in results], align_right=True, drop_order=6)
    yield Column("items", [f"{result.sent_count:,}" for result in results], align_right=True, drop_order=3)
    yield Column(
        "input", [f"{usage.input_tokens:,}" if usage else NO_VALUE for usage in usages], align_right=True, drop_order=5
    )
    yield Column(
        "cached",
        [f"{usage.cached_tokens:,}" if usage else NO_VALUE for usage in usages],
        align_right=True,
        drop_order=2,
    )
    yield Column(
        "output",
        [f"{usage.output_tokens:,}" if usage else NO_VALUE for usage in usages],
        align_right=True,
        drop_order=4,
    )
    if price:
        costs = [result.cost_usd(price) for result in results]
        yield Column(
            "cost", [_format_usd(cost) for cost in costs], align_right=True, start_styles=_lowest_cost_styles(costs)
        )
    yield Column(
        "first token", [_format_seconds(result.first_token_s) for result in results], align_right=True, drop_order=1
    )
    yield Column("total", [_format_seconds(result.duration_s) for result in results], align_right=True)
    statuses = [Status(result.error["code"], FAILED) if result.error else Status("done", DONE) for result in results]
    yield status_column("status", statuses, display)


def _lowest_cost_styles(costs: Sequence[float | None]) -> list[tuple[int, str] | None]:
    """Return the style of each cost: the lowest is green if another one is higher."""
    known = [cost for cost in costs if cost is not None]
    return [
        (len(_format_usd(cost)), "good") if cost is not None and cost == min(known) < max(known) else None
        for cost in costs
    ]


def _format_usd(cost: float | None) -> str:
    return "".join(format_cost(cost)) or NO_VALUE


def _format_seconds(seconds: float | None) -> str:
    return NO_VALUE if seconds is None else f"{seconds:.2f} s"


def _byte_bars(results: "Sequence[RaceResult]", display: DisplayOptions) -> Iterator[str]:
    max_bytes = max((result.request_bytes for result in results), default=0)
    columns = (
        MAX_BYTE_BAR_COLUMNS
        if display.width is None
        else max(1, min(MAX_BYTE_BAR_COLUMNS, display.width - BYTE_BAR_LABEL_COLUMNS))
    )
    for result in results:
        size = result.request_bytes
        if display.width is None:
            char = "█" if display.has_box_chars else "#"
            bar = char * (max(1, round(columns * size / max_bytes)) if size else 0)
        else:
            bar = render_bar(size, max(1, max_bytes), columns, display)
        yield f"{result.strategy:<12}  {bar} {size:,}"


MAX_NAMED_POSITIONS = 6
"""Item numbers of one loss that are listed; the others are counted."""


def render_losses(losses: Sequence[TransferLoss], notes: Sequence[str], display: DisplayOptions) -> str:
    """Render the losses of a transfer, one line for each kind."""
    rows = [(f"{loss.effect}", f"{loss.code}: {loss.reason} ({format_positions(loss)})") for loss in losses]
    rows += [("note", note) for note in notes]
    return render_key_values(rows or [("losses", "none")], display)


def format_positions(loss: TransferLoss) -> str:
    """Format the item numbers of a loss: "items 3, 5 and 9", "items 1, 2, 3, 4, 5, 6 and 20 more"."""
    shown, hidden_count = (
        [str(position) for position in loss.positions[:MAX_NAMED_POSITIONS]],
        len(loss.positions) - MAX_NAMED_POSITIONS,
    )
    if len(loss.positions) == 1:
        return f"item {shown[0]}"
    last = f"{hidden_count} more" if hidden_count > 0 else shown.pop()
    return f"items {', '.join(shown)} and {last}"


def new_session_rows(
    name: str, strategy: Strategy, handle: str | None, item_count: int, unconfirmed_count: int
) -> Iterator[KeyValue]:
    """Yield the properties of a new session."""
    owner = STRATEGIES[strategy]
    yield "session", name
    yield "owner", f"{owner.description} (--{strategy})"
    if handle:
        yield "handle", handle
    elif owner.is_server_side:
        yield "handle", "none yet: the first turn creates it and sends the full history"
    yield (
        "items",
        format_count(item_count) + (f", {unconfirmed_count} unconfirmed" if unconfirmed_count else ""),
    )


MAX_COUNT_DIGITS = 6

COMPACTION_METHOD_TEXTS = {
    CompactionMethod.IN_PLACE: "by the endpoint, in the conversation itself",
    CompactionMethod.PREVIOUS: "by the endpoint, from the previous response id",
    CompactionMethod.INPUT: "by the endpoint's compaction API",
    CompactionMethod.SUMMARY: "by a summary from the model",
}


def render_compaction(session: Session, compaction: "CompactionResult", display: DisplayOptions) -> str:
    """Render the result of a compaction as a screen."""
    return render_key_values(_compaction_rows(session, compaction), display)


def format_compaction(session: Session, compaction: "CompactionResult") -> str:
    """Format the result of a compaction for an interactive chat: one line, and one for the summary."""
    prepared = compaction.prepared
    tokens = format_token_reduction(prepared.count_before, compaction.count_after)
    summary = f"compacted {format_count(len(prepared.plan.compacted_items))}, {tokens}"
    old_history = (
        [f"previous history: {format_old_history_command(session, compaction.old_handle)}"]
        if compaction.old_handle
        else []
    )
    numbers = _describe_turn_numbers(prepared)
    losses = [str(prepared.prefix)] if prepared.prefix and prepared.prefix.has_loss else []
    line = "; ".join(
        [
            f"{summary}; dropped {_describe_dropped(prepared)}",
            *([f"turns are numbered again: {numbers}"] if numbers else []),
            *old_history,
            *prepared.notes,
            *losses,
        ]
    )
    text = _describe_summary(prepared)
    return f"{line}\nsummary: {text}" if text else line


def parse_compact_arguments(text: str) -> tuple[CompactionOptions, bool]:
    """Parse the arguments of /compact: a focus, --keep-last N, --yes. Raises InvalidUsage."""
    words, keep_turns, yes = text.split(), 0, False
    focus: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--keep-last":
            keep_turns = _parse_turn_count(words.pop(0) if words else "")
        elif word == "--yes":
            yes = True
        else:
            focus.append(word)
    return CompactionOptions(focus=" ".join(focus) or None, keep_turns=keep_turns), yes


def _parse_turn_count(text: str) -> int:
    if not text.isdecimal() or len(text) > MAX_COUNT_DIGITS:
        raise InvalidUsage("--keep-last takes a number of turns", hint="/compact --keep-last 2")
    return int(text)


def render_compaction_preview(prepared: "PreparedCompaction", display: DisplayOptions) -> str:
    """Render a compaction that was prepared but not applied as a screen."""
    rows = [
        ("would compact", format_token_reduction(prepared.count_before, prepared.count_after)),
        *_prepared_rows(prepared),
    ]
    rows += [("new history" if index == 0 else "", line) for index, line in enumerate(_replacement_lines(prepared))]
    return render_key_values(rows, display)


def format_token_reduction(before: TokenCount, after: TokenCount) -> str:
    """Format the tokens before and after: "12,340 → 1,820 tokens, 85 % less"."""
    if after.tokens >= before.tokens:
        return f"{before} → {after} tokens, not smaller"
    percent = round(100 * (before.tokens - after.tokens) / before.tokens)
    return f"{before} → {after} tokens, {percent} % less"


def format_old_history_command(session: Session, old_handle: str) -> str:
    """Return the command that continues the history from before the compaction."""
    flag = "--replay --from" if session.replay_file else "--from"
    return f"convo chat {flag} {quote(old_handle)}"


def _compaction_rows(session: Session, compaction: "CompactionResult") -> Iterator[KeyValue]:
    yield "compacted", format_token_reduction(compaction.prepared.count_before, compaction.count_after)
    yield from _prepared_rows(compaction.prepared)
    if numbers := _describe_turn_numbers(compaction.prepared):
        yield "turns", f"numbered again: {numbers}"
    if compaction.later_count:
        yield (
            "later",
            f"{format_count(compaction.later_count)} after the compacted ones: added meanwhile or unconfirmed",
        )
    yield "continues as", format_owner_handle(session)
    yield (
        "previous",
        format_old_history_command(session, compaction.old_handle)
        if compaction.old_handle
        else "the compacted items stay in the conversation, before the compaction item",
    )


def _prepared_rows(prepared: "PreparedCompaction") -> Iterator[KeyValue]:
    kept = f", {len(prepared.plan.kept_items):,} kept unchanged" if prepared.plan.kept_items else ""
    yield "items", f"{len(prepared.plan.compacted_items):,} compacted{kept}"
    yield "dropped", _describe_dropped(prepared)
    yield "method", COMPACTION_METHOD_TEXTS[prepared.plan.method]
    if summary := _describe_summary(prepared):
        yield "summary", summary


def _describe_dropped(prepared: "PreparedCompaction") -> str:
    dropped = prepared.count_dropped()
    counts = ((dropped.messages, "message"), (dropped.calls, "call"), (dropped.reasoning, "reasoning item"))
    parts = [format_count(count, noun) for count, noun in counts if count]
    return f"{', '.join(parts) or 'nothing'}, about {format_count(dropped.tokens, 'token')}"


def _describe_summary(prepared: "PreparedCompaction") -> str:
    """Return the size and the beginning of the summary; "" if the endpoint compacts in place."""
    summary = prepared.describe_summary()
    if summary is None:
        return ""
    size = f"about {format_count(summary.tokens, 'token')}"
    return f"{size}: {summary.excerpt}" if summary.excerpt else f"{size}, encrypted by the endpoint"


def _describe_turn_numbers(prepared: "PreparedCompaction") -> str:
    """Say which turns `--fork NAME@N` finds afterwards; "" where the endpoint keeps the compacted items."""
    if prepared.plan.method is CompactionMethod.IN_PLACE:
        return ""
    compacted_end = len(prepared.replacement) - len(prepared.plan.kept_items)
    starts = turn_starts(prepared.replacement)
    last_compacted = sum(start < compacted_end for start in starts)
    kept = f", the kept turns follow from {last_compacted + 1}" if len(starts) > last_compacted else ""
    return f"{'1 is' if last_compacted < 2 else f'1 to {last_compacted} are'} the compacted history{kept}"


def _replacement_lines(prepared: "PreparedCompaction") -> Iterator[str]:
    for item in prepared.replacement:
        yield f"{item.get('role') or item_type(item)}: {item_preview(item, 200)}"


SEVERITY_STYLES = {Severity.ERROR: "bad", Severity.WARNING: "warn"}


def render_lint_report(report: "LintReport", display: DisplayOptions) -> str:
    """Render one report as a screen, without the last line break."""
    lines = [f"{display.apply_style(escape_control_chars(report.handle), 'bold')}: {_summarize_findings(report)}"]
    locations = [_finding_location(report, index) for index in range(len(report.findings))]
    width = max(map(text_width, locations), default=0)
    for finding, location in zip(report.findings, locations, strict=True):
        severity = display.apply_style(f"{finding.severity:<7}", SEVERITY_STYLES[finding.severity])
        text = escape_control_chars(f"{finding.code}: {finding.issue.message}")
        first, *others = _wrap_finding_text(text, width + FINDING_TEXT_OFFSET, display)
        lines += [f"  {pad_text(location, width)}  {severity}  {first}".rstrip(), *others]
    for code, reason in report.unchecked_rules:
        lines.append(wrap_sentence(f"  {escape_control_chars(f'{code}: {reason}')}", display.width))
    if report.findings:
        lines.append(f"  try: convo lint --explain {report.findings[0].code}")
    if report.repair_command:
        lines.append(f"       {escape_control_chars(report.repair_command)}")
    return display.translate_box_chars("\n".join(lines))


FINDING_TEXT_OFFSET = len("    warning  ")
"""Columns of a finding in its line without its location and its text."""

MIN_FINDING_TEXT_COLUMNS = 36
"""Columns that the text of a finding needs in the line of its location; with fewer it begins in the next line."""


def _wrap_finding_text(text: str, start: int, display: DisplayOptions) -> list[str]:
    """Return the text of a finding that begins at the column `start`, and its further lines with their indent."""
    if display.width is None or start + text_width(text) <= display.width:
        return [text]
    is_in_line = display.width - start >= MIN_FINDING_TEXT_COLUMNS
    indent = " " * (start if is_in_line else len("    "))
    lines = wrap_sentence(text, display.width - len(indent))
    wrapped = [f"{indent}{line.strip()}" for line in lines.split("\n")]
    return [wrapped[0].strip(), *wrapped[1:]] if is_in_line else ["", *wrapped]


def render_repair(
    name: str,
    repair: "RepairResult | None",
    item_paths: Sequence[str],
    display: DisplayOptions,
    *,
    is_saved: bool = True,
) -> str:
    """Render one repair as a screen, without the last line break.

    repair:  None if there was nothing to fix and nothing was written
    """
    if repair is None:
        return "nothing to repair"
    if not repair.changes:
        count = format_count(len(repair.view.items))
        return f"nothing to repair{f': copied {count} to {escape_control_chars(name)}' if is_saved else ''}"
    owner = STRATEGIES[repair.view.strategy].description
    title = display.apply_style(escape_control_chars(name), "bold")
    head = f"{title}: {format_count(len(repair.view.items))}, owner: {owner}"
    lines = [head if is_saved else f"{head} (dry run)"]
    width = max((text_width(_change_location(change, item_paths)) for change in repair.changes), default=0)
    for change in repair.changes:
        reason = f"{change.reason} [{change.code}]" if change.code else change.reason
        lines.append(
            f"  {pad_text(_change_location(change, item_paths), width)}  {change.action:<12}  "
            f"{escape_control_chars(reason)}"
        )
    return display.translate_box_chars("\n".join(lines))


def _summarize_findings(report: "LintReport") -> str:
    counts = [format_count(report.error_count, "error"), format_count(report.warning_count, "warning")]
    summary = ", ".join(
        text for text, number in zip(counts, (report.error_count, report.warning_count), strict=True) if number
    )
    return f"{summary or 'no problems'} in {format_count(len(report.view.items))}"


def _finding_location(report: "LintReport", index: int) -> str:
    finding = report.findings[index]
    line = report.finding_line(finding)
    path = (
        finding.issue.link_id
        if finding.issue.item_index is None and finding.issue.link_id
        else report.finding_path(finding)
    )
    return escape_control_chars(f"{report.handle}:{line} {path}" if line else path)


def _change_location(change: RepairChange, item_paths: Sequence[str]) -> str:
    return "" if change.source_index is None else escape_control_chars(item_paths[change.source_index])


class CheckLevel(StrEnum):
    """Result level of a check: an error prevents something from working, a warning may cause a surprise later."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "fault"


LEVEL_TEXTS = {CheckLevel.WARNING: "warning", CheckLevel.ERROR: "error"}
"""The text of a level on a terminal; its value is the one in JSON."""

LEVEL_MARKS = {CheckLevel.OK: DONE, CheckLevel.WARNING: WARNING, CheckLevel.ERROR: FAILED}

LEVEL_STYLES = {CheckLevel.OK: "good", CheckLevel.WARNING: "warn", CheckLevel.ERROR: "bad"}
"""Style of the name of a check: that of its sign."""


class CheckResult(NamedTuple):
    """Result of one check.

    message:  one sentence
    hint:     the suggested fix, or empty
    brief:    the message in a few words, for the list of all checks on a terminal; "" if it has only one form
    """

    level: CheckLevel
    message: Annotated[str, Wire("found")]
    hint: Annotated[str, Wire("next")] = ""
    brief: Annotated[str, HIDDEN] = ""


class CheckReport(NamedTuple):
    """The name of a check and its result."""

    name: str
    result: Annotated[CheckResult, FLAT]


class DoctorReport(NamedTuple):
    """The results of all checks.

    ok:  whether no check has failed
    """

    ok: bool
    checks: Sequence[CheckReport]


def make_ok_result(message: str, hint: str = "", *, brief: str = "") -> CheckResult:
    return CheckResult(CheckLevel.OK, message, hint, brief)


def make_warning_result(message: str, hint: str) -> CheckResult:
    return CheckResult(CheckLevel.WARNING, message, hint)


def make_error_result(message: str, hint: str) -> CheckResult:
    return CheckResult(CheckLevel.ERROR, message, hint)


def render_checks(reports: Sequence[CheckReport], display: DisplayOptions) -> str:
    """Render all checks in their order, on a terminal with signs; a result that is not ok begins with its level.

    A terminal shows one line for each passed check, without its hint, unless it is the only check.
    """
    is_brief = display.width is not None and len(reports) > 1
    value_columns = (display.width or 0) - max((len(report.name) for report in reports), default=0) - LABEL_INDENT
    rows = []
    for name, (level, message, hint, brief) in reports:
        if level is CheckLevel.OK and is_brief:
            rows.append((name, _fit_message(message, brief or message, max(1, value_columns))))
            continue
        rows.append((name, message if level is CheckLevel.OK else f"{LEVEL_TEXTS[level]}: {message}"))
        rows += [("", f"try: {hint}")] if hint else []
    styles = {name: LEVEL_STYLES[result.level] for name, result in reports}
    signs = {name: format_sign(LEVEL_MARKS[result.level], display) for name, result in reports}
    return render_key_values(rows, display, styles, signs=signs)


CLAUSE_ENDS = ("; ", " (", ", ")
"""Separators at which a message can be cut, those of the largest clauses first."""


def _fit_message(message: str, brief: str, columns: int) -> str:
    """Return the message if it fits, else its brief form, else the first clauses of the brief form.

    A list that is cut ends with "…".
    """
    message, brief = escape_control_chars(message), escape_control_chars(brief)
    if text_width(message) <= columns:
        return message
    if text_width(brief) <= columns:
        return brief
    for end in CLAUSE_ENDS:
        suffix = ", …" if end == ", " else ""
        clauses = brief
        while end in clauses:
            clauses = clauses.rpartition(end)[0]
            if text_width(clauses + suffix) <= columns:
                return clauses + suffix
    return truncate_text(brief, columns)


def summarize_checks(reports: Sequence[CheckReport], *, with_names: bool = False) -> str:
    """Count the errors and the warnings, in one line; `with_names` adds the names of the checks."""
    names_by_level = {
        level: [report.name for report in reports if report.result.level is level] for level in LEVEL_TEXTS
    }
    counts = [
        format_count(len(names_by_level[level]), LEVEL_TEXTS[level])
        + (f": {', '.join(names_by_level[level])}" if with_names else "")
        for level in (CheckLevel.ERROR, CheckLevel.WARNING)
        if names_by_level[level]
    ]
    return ("; " if with_names else " and ").join(counts) or "all checks passed"
