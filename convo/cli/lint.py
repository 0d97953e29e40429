"""`convo lint`: report state that the next request would be rejected for.

Every handle is loaded before anything is printed, so an unreadable one leaves no half report.
Exit code 4: errors, or with --strict warnings.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.resources import files

from convo import __version__
from convo.cli.lint_target import load_lint_target
from convo.cli.resolve import LookupOptions
from convo.config.values import find_closest_word
from convo.errors import NotFound
from convo.lint.report import LintReport, build_sarif
from convo.lint.rules import LINT_RULE_BY_CODE, LINT_RULES
from convo.terminal.report_views import render_lint_report
from convo.terminal.terminal import detect_display, escape_control_chars

FINDINGS_EXIT_CODE = 4
"""The exit code of a history with errors, or with warnings under --strict."""

RULE_PAGES_PACKAGE = "convo.lint"


def run_lint(handles: Sequence[str], options: LookupOptions, output_format: str, *, strict: bool) -> bool:
    """Print the findings of all handles, after all were loaded.

    Returns whether one has an error, or a warning if `strict`.
    """
    reports = [load_lint_target(handle, options).build_report() for handle in dict.fromkeys(handles)]
    sys.stdout.write(render_lint_reports(reports, output_format))
    return any(report.error_count or (strict and report.warning_count) for report in reports)


def render_lint_reports(reports: Sequence[LintReport], output_format: str) -> str:
    """Render the reports as "json", "sarif" or text."""
    if output_format == "json":
        return "".join(json.dumps(report.to_json()) + "\n" for report in reports)
    if output_format == "sarif":
        return (
            json.dumps(
                build_sarif(reports, {rule.code: read_rule_page(rule.code) for rule in LINT_RULES}, __version__),
                indent=2,
            )
            + "\n"
        )
    display = detect_display(sys.stdout, os.environ)
    return "\n".join(render_lint_report(report, display) + "\n" for report in reports)


def print_rule(code: str) -> None:
    """Print a rule's page, or one line for each rule. Raises NotFound."""
    if code == "all":
        width = max(map(len, LINT_RULE_BY_CODE))
        sys.stdout.write("".join(f"{rule.code:<{width}}  {rule.severity:<7}  {rule.summary}\n" for rule in LINT_RULES))
    elif code in LINT_RULE_BY_CODE:
        sys.stdout.write(read_rule_page(code))
    else:
        error = NotFound("rule", escape_control_chars(code), hint="convo lint --explain all")
        raise error.with_argument_fix(code, find_closest_word(code, LINT_RULE_BY_CODE))


def read_rule_page(code: str) -> str:
    """Return a rule's page, in Markdown."""
    return files(RULE_PAGES_PACKAGE).joinpath("pages", f"{code}.md").read_text(encoding="utf-8")
