"""Recorded answers of real servers are read as they were meant, in every way through the gateway.

`uv run pytest -n 0 -m recordings tests/recordings` replays the archive that `CONVO_TEST_RECORDINGS` names; the default
run replays a few answers of our own, each also with wrong expectations.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.command_runner import Convo
from tests.needs import RECORDINGS
from tests.recordings import TABLE, sample
from tests.recordings.answers import judge_reply
from tests.recordings.archive import Archive, RecordedRequest, Recording, from_row, load_archive
from tests.recordings.conftest import TABLE as TABLE_PROPERTY
from tests.recordings.replay import Results, replay
from tests.recordings.table import list_wrong, make_table

REPLAY_S = 1200
"""Time limit in seconds: four minutes on two cores that do nothing else."""


def of_the_archive(test: Any) -> Any:
    """Mark a test of the whole archive; the first one replays it."""
    for mark in (pytest.mark.recordings, pytest.mark.needs("recordings"), pytest.mark.timeout(REPLAY_S)):
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def archive() -> Archive:
    return load_archive(Path(RECORDINGS))


@pytest.fixture(scope="module")
def results(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return replay(archive, tmp_path_factory.mktemp("recordings"))


@of_the_archive
def test_every_recorded_answer_is_read_as_it_was_meant(results: Results) -> None:
    fail_with(list_wrong(results))


@of_the_archive
def test_the_page_has_the_counts_of_this_replay(results: Results, request: pytest.FixtureRequest) -> None:
    """To update them: python -m tests.recordings.table > tests/recordings/table.json"""
    table = make_table(results)
    request.node.user_properties.append((TABLE_PROPERTY, table["vendors"]))
    assert table == json.loads(TABLE.read_text(encoding="utf-8"))


@of_the_archive
def test_lint_has_no_error_for_a_request_that_a_server_took(archive: Archive, tmp_path: Path, convo: Convo) -> None:
    fail_with(lint_requests(archive, tmp_path, convo))


def fail_with(wrong: list[str]) -> None:
    print(*wrong, sep="\n")  # pytest shows it if the test fails
    if wrong:
        pytest.fail(f"{len(wrong)} wrong", pytrace=False)


def lint_requests(archive: Archive, folder: Path, convo: Convo) -> list[str]:
    """The errors in requests that the Responses API took, a line each."""
    wrong: list[str] = []
    recorded: list[Recording | RecordedRequest] = [*archive.recordings, *archive.requests]
    for one in recorded:
        if one.api == "responses" and one.accepted and one.request and "input" in one.request:
            file = folder / f"{one.name}.json"
            file.write_text(json.dumps(one.request), encoding="utf-8")
            report = convo("lint", "--json", str(file)).json()
            errors = [finding for finding in report.get("findings", ()) if finding["severity"] == "error"]
            errors += [report["error"]] if "error" in report else []
            wrong += [f"{one.name}: {error['code']}: {error['message']}" for error in errors]
    return wrong


# -- the runner itself, with recordings of our own ------------------------------------------------


def test_right_wrong_and_refused_recordings_are_told_apart(tmp_path: Path) -> None:
    changed = [
        {**one, "name": f"{one['name']}-{member}", "expected": {**one["expected"], member: other}}
        for one in sample.RIGHT
        for member, other in sample.OTHERS.items()
        if one["expected"].get(member) and ("error" not in one["expected"] or member == "error")
    ]
    unnamed = {**sample.REFUSED, "name": "unnamed", "expected": {**sample.REFUSED["expected"], "hosted": []}}
    wrong = {one["name"]: one for one in (*changed, unnamed)}
    right = {one["name"]: one for one in sample.RIGHT}
    request = {"input": "hi", "unheard_of": 1}
    further = {"name": "further", "api": "responses", "request": request, "accepted": True, "of": "responses"}
    cases = (sample.REFUSED, sample.NOT_SENT, *right.values(), *wrong.values())

    results = replay(load_archive(sample.write_archive(tmp_path / "archive", cases, further)), tmp_path)

    verdicts = {one.recording.name: one.verdict for one in results.replayed}
    others = {"claude-search": "refused", "ambiguous": "n.a."}
    assert verdicts == others | dict.fromkeys(right, "right") | dict.fromkeys(wrong, "wrong")
    lines = list_wrong(results)
    assert [line.partition(":")[0] for line in lines] == [*wrong, "further"]
    for one, line in zip(changed, lines, strict=False):
        assert f"{one['name'].rpartition('-')[2]}: expected" in line
    ways = {name: tuple(one.outcomes) for one in results.replayed if (name := one.recording.name) in right}
    whole = dict.fromkeys(("chat", "chat-refusal", "claude"), ("framed", "pass", "record"))
    assert ways == dict.fromkeys(right, ("stream", "plain", "pass", "record")) | whole
    assert make_table(results)["vendors"]["anthropic"] == {"answers": 14, "right": 2, "refused": 1, "n.a.": 0}


STREAMED: list[dict[str, Any]] = [
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "msg_1"}},
    {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1", "delta": "Sunny."},
    {"type": "response.completed", "response": {**sample.RESPONSE, "output": sample.RESPONSE["output"][:1]}},
]


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        (0, {}, ""),
        (1, {"delta": "Sun"}, "text of the deltas"),
        (1, {"item_id": "msg_2"}, "ids of item 0"),
        (2, {"type": "response.created", "response": {}}, "finish"),
        (2, {"response": {**sample.RESPONSE, "output": [sample.RESPONSE["output"][1]] * 2}}, "call ids"),
    ],
)
def test_the_events_of_an_answer_are_compared_with_it(number: int, change: Mapping[str, Any], expected: str) -> None:
    case = {**sample.recording("case", "responses", sample.RESPONSE, text="Sunny."), "stream": True}
    events = [{**event, **change} if index == number else event for index, event in enumerate(STREAMED)]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    assert expected in judge_reply(from_row(Recording, case), 200, body, is_stream=True).reason


def test_lint_errors_in_requests_that_a_server_took_are_listed(tmp_path: Path, convo: Convo) -> None:
    orphan = {"type": "function_call_output", "call_id": "call_1", "output": "Sunny."}
    cases = [
        {**sample.recording(name, "responses", sample.RESPONSE), "request": {"model": "m", "input": items}}
        for name, items in (("right", [{"role": "user", "content": "hi"}]), ("wrong", [orphan]))
    ]
    archive = load_archive(sample.write_archive(tmp_path / "archive", cases))
    (line,) = lint_requests(archive, tmp_path, convo)
    assert line.startswith("wrong: ")
