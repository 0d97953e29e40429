"""An answer that is cut in a call: no tool runs, and the conversation continues with every owner.

The server refuses what the real APIs refuse: one half of a pair of call and output, and arguments that are no JSON.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import Json, item_type
from convo.strategies.requests import NOT_RUN_MESSAGE
from tests.cli.chat_commands import stored_conversation
from tests.combinations import rotated_combinations
from tests.command_runner import Convo
from tests.hostile_server import run_hostile_server
from tests.sequences.strict_server import Answer, StrictServer

APIS = ("chat", "anthropic", "responses")
OWNERS = ("session", "replay", "chain", "conversation")
CUT_CALL = (("c1", "look_up", '{"order": '),)
REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
ENDS = [(api, end) for api in APIS for end in REASONS]

STUCK_ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "What did it cost?"},
    {"type": "message", "role": "assistant", "content": "Let me look.", "status": "completed"},
    {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"order": ', "status": "incomplete"},
    {"type": "function_call_output", "call_id": "c1", "output": "It cost 5."},
    {"type": "message", "role": "user", "content": "And?"},
]
"""A history as earlier versions left it: the tool of a cut answer ran, and each later request had its output alone."""


@pytest.fixture
def server(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictServer]:
    """A strict server of the API in the parameter, as the provider `up` of the settings, and the file of a tool."""
    Path("desk.py").write_text('def look_up(order: str) -> str:\n    open("ran", "w").close()\n    return "5"\n')
    monkeypatch.setenv("UP_KEY", "test-key")
    server = StrictServer(request.param)
    with ExitStack() as stack:
        url = stack.enter_context(run_hostile_server(server)).url
        url = url.removesuffix("/v1") if server.api == "anthropic" else url
        (home / "config").mkdir(parents=True)
        provider = f'[providers.up]\napi = "{server.api}"\nbase_url = "{url}"\nkey_env = "UP_KEY"\n'
        (home / "config" / "config.toml").write_text(provider)
        yield server


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize(("server", "end"), ENDS, indirect=["server"])
def test_no_tool_of_a_cut_answer_runs_and_the_next_turn_is_accepted(
    server: StrictServer, owner: str, end: str, convo: Convo, home: Path
) -> None:
    server.answers += [Answer("Fine."), Answer("Let me look.", calls=CUT_CALL, end=end)]
    arguments = ("--tool", "desk.py:look_up", "-m", "up/m", f"--{owner}", "-n", "mine")
    assert convo("chat", *arguments, "Hello.").exit == 0
    got = convo("chat", "--from", "mine", "What did it cost?")
    assert (got.exit, got.out.splitlines()[0]) == (1, "Let me look.")  # Claude adds that it will not answer
    assert f"incomplete ({REASONS[end]})" in got.err
    assert f"convo: The response was cut ({REASONS[end]}), so no tool of it was run" in got.err
    first, cut = stored_conversation(home, "mine")[1]
    assert (first.status, cut.status) == ("completed", "incomplete")

    got = convo("chat", "-c", "And?")
    assert (got.exit, got.out, server.refusals) == (0, "Fine.\n", []), got.err
    assert not Path("ran").exists()
    items, (*_, last) = stored_conversation(home, "mine")
    calls = [item["output"] for item in items if item_type(item) == "function_call_output"]
    assert (calls, last.previous_response_id) == {
        "session": ([], None),
        "replay": ([], None),
        "chain": ([], first.id),
        "conversation": ([NOT_RUN], None),
    }[owner]


@pytest.mark.parametrize("server", ["chat"], indirect=True)
def test_the_text_of_a_stream_that_breaks_off_is_printed_once_and_the_end_is_explained(
    server: StrictServer, convo: Convo
) -> None:
    server.answers.append(Answer("Half of an answer.", sent_part=0.6))
    got = convo("chat", "--tool", "desk.py:look_up", "-m", "up/m", "Hello.")
    assert (got.exit, got.out.count("Half")) == (1, 1), got
    assert "note: " in got.err
    assert "; the part that arrived is kept" in got.err


NOT_RUN = "The run ended before this tool was called."


@pytest.mark.parametrize("server", ["chat"], indirect=True)
@pytest.mark.parametrize("is_file", [False, True])
def test_a_history_with_the_output_of_a_cut_call_is_found_repaired_and_continued(
    server: StrictServer, is_file: bool, convo: Convo
) -> None:
    Path("stuck.json").write_text(json.dumps(STUCK_ITEMS))
    source = ("--replay", "--from", "stuck.json") if is_file else ("--from", "stuck")
    handle = "./stuck.json" if is_file else "stuck"
    if not is_file:
        assert convo("import", "stuck.json", "--as", "stuck").exit == 0
    found = convo("lint", handle)
    assert found.exit == 4
    assert "output-without-call: this function call output has a call that was cut: c1" in found.out
    assert convo("repair", handle, "--as", "fixed").exit == 0
    assert convo("lint", "fixed").exit == 0
    for options in (("--from", "fixed"), source):
        got = convo("chat", *options, "-m", "up/m", "Still there?")
        assert (got.exit, got.out, server.refusals) == (0, "Fine.\n", []), got.err


@pytest.mark.parametrize("server", ["chat"], indirect=True)
@pytest.mark.parametrize("half", [STUCK_ITEMS[2] | {"status": "completed"}, STUCK_ITEMS[3]])
def test_the_error_for_half_a_pair_names_the_command_that_repairs_it(
    server: StrictServer, half: Json, convo: Convo
) -> None:
    Path("half.json").write_text(json.dumps([STUCK_ITEMS[0], half, STUCK_ITEMS[4]]))
    assert convo("import", "half.json", "--as", "half").exit == 0
    refused = convo("chat", "--from", "half", "-m", "up/m", "Still there?")
    assert refused.exit == 1
    assert "convo repair half --as NAME" in refused.err
    assert convo("repair", "half", "--as", "whole").exit == 0
    got = convo("chat", "--from", "whole", "-m", "up/m", "Still there?")
    assert (got.exit, got.out, server.refusals) == (0, "Fine.\n", []), got.err


@pytest.mark.parametrize(("owner", "server"), rotated_combinations(OWNERS, APIS), indirect=["server"])
def test_a_call_that_no_tool_can_answer_is_answered_before_the_next_message(
    server: StrictServer, owner: str, convo: Convo, home: Path
) -> None:
    """A model may call a function that a plain chat does not have."""
    server.answers.append(Answer("Let me look.", calls=(("c1", "look_up", "{}"),)))
    assert convo("chat", "-m", "up/m", f"--{owner}", "-n", "mine", "Hello.").exit == 0
    body: dict[str, Any] = convo("next", "mine", "And?", "--json").json()["body"]
    got = convo("chat", "-c", "And?")
    assert (got.exit, got.out, server.refusals) == (0, "Fine.\n", []), got.err
    assert "c1 was not run; the next request reports that to the model\n" in got.err
    items, _ = stored_conversation(home, "mine")
    outputs = [item for item in items if item_type(item) == "function_call_output"]
    assert outputs == [{"type": "function_call_output", "call_id": "c1", "output": NOT_RUN_MESSAGE}]
    assert NOT_RUN_MESSAGE in json.dumps(body)
