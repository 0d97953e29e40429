"""The counts of a replay, as `table.json` has them for the page of clients.

CONVO_TEST_RECORDINGS=ARCHIVE python -m tests.recordings.table > tests/recordings/table.json
"""

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.needs import RECORDINGS
from tests.recordings.answers import NOT_SENT, REFUSED, RIGHT, WRONG
from tests.recordings.archive import load_archive
from tests.recordings.replay import Replayed, Results, replay


def make_table(results: Results) -> dict[str, Any]:
    """Counts of answers.

    sources:           by repository
    vendors:           by vendor: all, and those with each verdict
    refused, not_sent: by reason
    refused_requests:  recorded requests in whose place a simple one was sent, by reason
    """
    replayed = results.replayed
    verdicts: dict[str, list[str]] = defaultdict(list)
    for one in replayed:
        verdicts[one.recording.vendor].append(one.verdict)
    vendors = {
        vendor: {"answers": len(seen), **{verdict: seen.count(verdict) for verdict in (RIGHT, REFUSED, NOT_SENT)}}
        for vendor, seen in sorted(verdicts.items())
    }
    return {
        "sources": count(one.recording.source.partition(":")[0] for one in replayed),
        "vendors": vendors,
        "refused": count_reasons(replayed, REFUSED),
        "not_sent": count_reasons(replayed, NOT_SENT),
        "refused_requests": count(one.refused_request for one in replayed if one.refused_request),
    }


def count_reasons(replayed: list[Replayed], verdict: str) -> dict[str, int]:
    return count(
        next(reason for kind, reason in one.outcomes.values() if kind == verdict)
        for one in replayed
        if one.verdict == verdict
    )


def count(reasons: Iterable[str]) -> dict[str, int]:
    """The most frequent one first."""
    counts = Counter(reason.removesuffix(".") for reason in reasons)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def list_wrong(results: Results) -> list[str]:
    """A line for each recording with a wrong outcome, and for each refused request that a server took."""
    wrong = [f"{one.recording.name}: {one.differences}" for one in results.replayed if one.verdict == WRONG]
    return wrong + [f"{name}: refused: {reason}" for name, reason in results.refused_requests.items()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        measured = replay(load_archive(Path(RECORDINGS)), Path(folder))
    json.dump(make_table(measured), sys.stdout, indent=2)
    sys.stdout.write("\n")
    sys.exit("\n".join(list_wrong(measured)) or 0)
