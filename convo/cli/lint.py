"""`convo lint`: report state that the next request would be rejected for.

Of several handles, an unreadable one is reported in its place, and the others are checked.
Exit code 4: errors, or with --strict warnings; that of the first unreadable handle, if there is one.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.resources import files

from convo import __version__
from convo.cli.lint_target import load_lint_target
from convo.cli.output import CommandFailure, print_failure, print_json, print_line, to_failure
from convo.cli.resolve import LookupOptions
from convo.config.values import find_closest_word
from convo.errors import ConvoError, NotFound
from convo.lint.report import LintReport, build_sarif
from convo.lint.rules import LINT_RULE_BY_CODE, LINT_RULES
from convo.secrets import redact_secrets
from convo.terminal.report_views import render_lint_report
from convo.terminal.terminal import detect_display, escape_control_chars

FINDINGS_EXIT_CODE = 4
"""The exit code of a history with errors, or with warnings under --strict."""

RULE_PAGES_PACKAGE = "convo.lint"


def run_lint(handles: Sequence[str], options: LookupOptions, output_format: str, *, strict: bool) -> int:
    """Print the findings of all handles, and return the exit code. Raises the error of a single handle."""
    reports: list[LintReport] = []
    failures: list[CommandFailure] = []
    display = detect_display(sys.stdout, os.environ)
    for handle in dict.fromkeys(handles):
        try:
            report = load_lint_target(handle, options).build_report()
        except ConvoError as error:
            if len(handles) == 1:
                raise
            failures.append(to_failure(error))
            print_failure(failures[-1], as_json=output_format == "json", handle=handle)
            continue
        if output_format == "json":
            print_json(report.summarize())
        elif output_format == "text":
            print_line(("\n" if reports else "") + render_lint_report(report, display))
        reports.append(report)
    if output_format == "sarif":
        pages = {rule.code: read_rule_page(rule.code) for rule in LINT_RULES}
        errors = [redact_secrets(failure.message) for failure in failures]
        print_line(json.dumps(build_sarif(reports, pages, __version__, errors=errors), indent=2))
    if failures:
        return failures[0].exit
    has_findings = any(report.error_count or (strict and report.warning_count) for report in reports)
    return FINDINGS_EXIT_CODE if has_findings else 0


def print_rule(code: str) -> None:
    """Print a rule's page, or one line for each rule. Raises NotFound."""
    if code == "all":
        width = max(map(len, LINT_RULE_BY_CODE))
        sys.stdout.write("".join(f"{rule.code:<{width}}  {rule.severity:<7}  {rule.summary}\n" for rule in LINT_RULES))
    elif code in LINT_RULE_BY_CODE:
        sys.stdout.write(read_rule_page(code))
    else:
        closest = find_closest_word(code, LINT_RULE_BY_CODE)
        note = f"; did you mean {closest!r}?" if closest else ""
        raise NotFound("rule", escape_control_chars(code), note=note, hint="convo lint --explain all")


def read_rule_page(code: str) -> str:
    """Return a rule's page, in Markdown."""
    return files(RULE_PAGES_PACKAGE).joinpath("pages", f"{code}.md").read_text(encoding="utf-8")
