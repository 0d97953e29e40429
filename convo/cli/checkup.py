"""What `convo doctor` does once its arguments are read: every check at once, and then one report.

A check looks and judges. Looking has effects and a time limit; what it sees is a value, and the
judgement is a plain function over it. An error of ours that comes out of looking is a judgement
already: it has a sentence and a next step.
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar

from convo.cli import judging, judging_store, looking, looking_models
from convo.cli.looking import LIMIT_S, Case
from convo.cli.saying import note, say, say_json
from convo.config import Flags
from convo.errors import ConvoError, Usage
from convo.ui.findings import Finding, Level, Report, fault, screen, summary
from convo.ui.medium import medium_of

Facts = TypeVar("Facts")

MARGIN_S = 1.0
"""What a look that watches its own time gets beyond it, to say so."""


class Check(NamedTuple):
    """One check: what it looks at, in a few words, and what it comes to."""

    about: str
    run: Callable[[Case], Finding]


def check(about: str, look: Callable[[Case], Facts], judge: Callable[[Facts], Finding]) -> Check:
    return Check(about, lambda case: judge(look(case)))


CHECKS = {
    "convo": check("this convo and its Python", looking.versions, judging.versions),
    "settings": check("the settings files and variables", looking.settings, judging.settings),
    "folders": check("where convo keeps things", looking.folders, judging.folders),
    "terminal": check("what the terminal can show", looking.terminal, judging.terminal),
    "extras": check("the optional packages", looking.extras, judging.extras),
    "store": check("the database of conversations", looking.store, judging_store.store),
    "keys": check("the providers' keys", looking_models.keys, judging.keys),
    "model": check("the model that answers when none is named", looking_models.model, judging.model),
    "local": check("the built-in model", looking_models.local, judging.local),
    "ollama": check("whether Ollama answers, where it is used", looking_models.ollama, judging.ollama),
    "serve": check("who may ask convo serve", looking.serve, judging.serve),
    "seal": check("the key that seals compacted windows", looking.seal, judging.seal),
    "network": check("whether the providers' servers can be reached", looking_models.network, judging.network),
}

ON_REQUEST = ("network",)
"""Checks that ask servers elsewhere."""


def examine(config: Path | None, flags: Flags, names: Sequence[str], *, network: bool, as_json: bool) -> bool:
    """Run the checks and print what they came to; whether nothing is a fault. raises: Usage  an unknown name"""
    reports = examined(chosen(names, network=network), looking.case(config, flags))
    well = all(report.finding.level is not Level.FAULT for report in reports)
    if as_json:
        say_json({"ok": well, "checks": [_as_object(report) for report in reports]})
    else:
        say(screen(reports, medium_of(sys.stdout, os.environ)))
        sys.stdout.flush()
        note(summary(reports))
    return well


def chosen(names: Sequence[str], *, network: bool) -> list[str]:
    """The checks to run, in their order. raises: Usage  an unknown name"""
    for name in names:
        if name not in CHECKS:
            near = get_close_matches(name, CHECKS, n=1)
            raise Usage(f"no check {name!r}", hint=f"convo doctor {near[0]}" if near else f"one of {', '.join(CHECKS)}")
    wanted = set(names) or set(CHECKS) - set(ON_REQUEST)
    return [name for name in CHECKS if name in wanted or (network and name in ON_REQUEST)]


def examined(names: Sequence[str], case: Case) -> list[Report]:
    """What each check came to, all of them at once; none is waited for longer than its time limit."""
    pool = ThreadPoolExecutor(max_workers=len(names))
    until = monotonic() + LIMIT_S + MARGIN_S
    begun = [(name, pool.submit(CHECKS[name].run, case)) for name in names]
    reports = [Report(name, _ended(future, until)) for name, future in begun]
    pool.shutdown(wait=False)
    return reports


def _ended(future: Future[Finding], until: float) -> Finding:
    try:
        return future.result(max(0.0, until - monotonic()))
    except ConvoError as wrong:
        return fault(wrong.message, wrong.hint)
    except TimeoutError:
        return fault(
            f"this did not end in {LIMIT_S:g} seconds", "see what keeps the disk, or the server, from answering"
        )


def _as_object(report: Report) -> dict[str, str]:
    name, (level, found, next_step) = report
    return {"name": name, "level": str(level), "found": found, "next": next_step}
