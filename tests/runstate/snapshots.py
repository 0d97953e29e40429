"""The run states that releases of openai-agents wrote, and malformed ones, in two archives.

`corpus.tar.xz` has 831 files of 25 releases with the expected meaning of each (`index.json`) and its
scenario (`expect/`: agents, scripted responses, results); `malformed.tar.xz` has 76 broken or hostile files.
"""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from convo.runstate.reader import parse_run_state
from convo.runstate.run_state import RunState

HERE = Path(__file__).parent

WITHOUT_NESTED_STATE = ("nested_agent_tool_approval", "nested_decided")
"""Scenarios with pending calls in an agent used as a tool: 1.0 cannot store them and no reader can resume them."""


@cache
def _files(archive: str) -> dict[str, bytes]:
    with tarfile.open(HERE / archive, "r:xz") as archive_file:
        files = {member.name: archive_file.extractfile(member) for member in archive_file if member.isfile()}
        return {name.partition("/")[2]: file.read() for name, file in files.items() if file}


@cache
def index() -> tuple[dict[str, Any], ...]:
    """Return the expected meaning of each snapshot, in the order of the index."""
    return tuple(json.loads(_files("corpus.tar.xz")["index.json"])["entries"])


def snapshot(name: str) -> bytes:
    """Return the bytes of one snapshot, as its release wrote them."""
    return _files("corpus.tar.xz")[name]


def load_scenario(name: str) -> dict[str, Any]:
    """Return the scenario of a snapshot: its agents, its scripted responses and the result of resuming it."""
    content: dict[str, Any] = json.loads(_files("corpus.tar.xz")[f"expect/{name}"])
    return content


def malformed() -> dict[str, bytes]:
    """Return the broken and hostile files by name."""
    return {name: data for name, data in sorted(_files("malformed.tar.xz").items()) if name != "index.json"}


def entries_of_label(label: str) -> list[dict[str, Any]]:
    return [entry for entry in index() if entry["schema"] == label]


def newest_state(scenario: str, label: str) -> RunState:
    """Return the snapshot that the newest release wrote of a scenario under a label."""
    found = [entry for entry in entries_of_label(label) if entry["scenario"] == scenario]
    return parse_run_state(snapshot(found[-1]["file"]))


def document(scenario: str, label: str) -> Any:
    """Return a copy of that snapshot's document, which a test may change."""
    return json.loads(json.dumps(newest_state(scenario, label).document))


def javascript_states(folder: str) -> dict[str, str]:
    """Return the states of the JavaScript SDK by name: "paused", or "decided" by the SDK."""
    files = _files("javascript.tar.xz").items()
    return {name.partition("/")[2]: data.decode() for name, data in sorted(files) if name.startswith(f"{folder}/")}
