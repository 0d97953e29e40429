"""State that will be refused, found before it is sent, and mended beside what is there.

Read `rules` first: the table of everything that can be wrong. `view` is what a rule is asked about,
`finding` what it answers. A family of rules is a file, each with its checks and the mends that
belong to them: `pairs`, `thoughts`, `arguments`, `ids`, `seals`, `compactions`, `shapes`, `owners` and
`exposed`. `mending` carries mends out until no rule has anything left; `report` and `sarif` are what
programs read, `lines` where in a file a finding is. Each rule has a page in `pages`, for people.
"""

from convo.inspection.linting.exposed import exposed_in
from convo.inspection.linting.finding import Change, Fault, Finding, Severity
from convo.inspection.linting.mending import Mended, for_a_file, for_a_session, mended
from convo.inspection.linting.report import Report, report
from convo.inspection.linting.rules import BY_CODE, RULES, lint, unjudged
from convo.inspection.linting.sarif import sarif
from convo.inspection.linting.view import View, bare, viewed

__all__ = [
    "BY_CODE",
    "RULES",
    "Change",
    "Fault",
    "Finding",
    "Mended",
    "Report",
    "Severity",
    "View",
    "bare",
    "exposed_in",
    "for_a_file",
    "for_a_session",
    "lint",
    "mended",
    "report",
    "sarif",
    "unjudged",
    "viewed",
]
