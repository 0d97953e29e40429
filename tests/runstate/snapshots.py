"""The snapshots that releases of openai-agents wrote, and the broken ones; both stay packed.

`corpus.tar.xz` holds 831 files of 25 releases with what each must mean (`index.json`) and its whole
story (`expect/`); `malformed.tar.xz` holds 76 that are broken or hostile.
"""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from convo.runstate.reader import parse_run_state
from convo.runstate.run_state import RunState

HERE = Path(__file__).parent


@cache
def _files(archive: str) -> dict[str, bytes]:
    with tarfile.open(HERE / archive, "r:xz") as packed:
        held = {member.name: packed.extractfile(member) for member in packed if member.isfile()}
        return {name.partition("/")[2]: file.read() for name, file in held.items() if file}


@cache
def index() -> tuple[dict[str, Any], ...]:
    """What each snapshot must mean, in the order of the index."""
    return tuple(json.loads(_files("corpus.tar.xz")["index.json"])["entries"])


def snapshot(name: str) -> bytes:
    """The bytes of one snapshot, as its release wrote them."""
    return _files("corpus.tar.xz")[name]


def story(name: str) -> dict[str, Any]:
    """How a snapshot came to be, and how it goes on."""
    told: dict[str, Any] = json.loads(_files("corpus.tar.xz")[f"expect/{name}"])
    return told


def malformed() -> dict[str, bytes]:
    """The broken and hostile files by name."""
    return {name: data for name, data in sorted(_files("malformed.tar.xz").items()) if name != "index.json"}


def entries_of_label(label: str) -> list[dict[str, Any]]:
    return [entry for entry in index() if entry["schema"] == label]


def newest_state(scenario: str, label: str) -> RunState:
    """The newest release's snapshot of a scenario under a label."""
    found = [entry for entry in entries_of_label(label) if entry["scenario"] == scenario]
    return parse_run_state(snapshot(found[-1]["file"]))


def document(scenario: str, label: str) -> Any:
    """A copy of that snapshot that a test may break."""
    return json.loads(json.dumps(newest_state(scenario, label).document))
