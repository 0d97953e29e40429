"""What `convo lint` does with its arguments: reads each handle, asks the rules, prints.

Every handle is read before anything is printed, so that one that cannot be read does not leave half
a report behind.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.resources import files

from convo import __version__
from convo.cli.subject import Where, subject
from convo.errors import NotFound
from convo.inspection.linting import BY_CODE, RULES, Report, sarif
from convo.ui.answer import safe
from convo.ui.linting import found
from convo.ui.medium import medium_of

FOUND = 4
"""The exit code of a history that has something wrong in it."""

PAGES = "convo.inspection.linting"


def findings(handles: Sequence[str], where: Where, form: str, *, strict: bool) -> bool:
    """Print what is wrong with each; nothing before all of them were read. Returns whether that counts."""
    reports = [subject(handle, where).report() for handle in dict.fromkeys(handles)]
    sys.stdout.write(printed(reports, form))
    return any(one.errors or (strict and one.warnings) for one in reports)


def printed(reports: Sequence[Report], form: str) -> str:
    if form == "json":
        return "".join(json.dumps(one.as_json()) + "\n" for one in reports)
    if form == "sarif":
        return json.dumps(sarif(reports, {rule.code: page(rule.code) for rule in RULES}, __version__), indent=2) + "\n"
    medium = medium_of(sys.stdout, os.environ)
    return "\n".join(found(one, medium) + "\n" for one in reports)


def explain(code: str) -> None:
    """Print a rule's page, or a line for each rule. raises: NotFound"""
    if code == "all":
        wide = max(map(len, BY_CODE))
        sys.stdout.write("".join(f"{rule.code:<{wide}}  {rule.severity:<7}  {rule.summary}\n" for rule in RULES))
    elif code in BY_CODE:
        sys.stdout.write(page(code))
    else:
        raise NotFound("rule", safe(code), hint="convo lint --explain all")


def page(code: str) -> str:
    """A rule's page, in Markdown."""
    return files(PAGES).joinpath("pages", f"{code}.md").read_text(encoding="utf-8")
