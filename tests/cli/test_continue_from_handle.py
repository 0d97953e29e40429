"""Continue from a handle: of another client, of an older response, or of another endpoint."""

from pathlib import Path

import pytest

from convo.config.settings import DEFAULT_MODELS
from convo.history.records import Strategy
from tests.cli.chat_commands import start_session
from tests.cli.remote_state import create_chain, create_conversation
from tests.command_runner import Convo, Launch
from tests.loopback_server import LoopbackServer, run_loopback_server
from tests.models.chat_server import run_chat_server as chat_serving
from tests.request_items import message_lines, state_fields, user_messages

pytestmark = pytest.mark.usefixtures("server")

OTHER_URL = "http://127.0.0.1:9/v1"


def mirrored_messages(convo: Convo, handle: str) -> list[str]:
    """Return the messages in the store up to the head of `handle`."""
    record = convo("inspect", handle, "--json").json()
    last = record["links"][-1]
    return message_lines([record["items"][key] for key in [*last["saw"], *last["output"]]])


def test_an_unrecorded_response_is_continued_and_its_history_is_mirrored(
    server: LoopbackServer, launch: Launch, convo: Convo
) -> None:
    ids = create_chain(server, "one", "two")
    first = launch("chat", "--chain", "--from", ids[1], "-n", "mine", "three")
    second = launch("chat", "-c", "four")
    assert [first.out, second.out] == ["three\n", "four\n"]
    third_id = convo("inspect", "mine", "--json").json()["links"][0]["response_id"]
    assert [body["input"] for body in server.bodies] == [user_messages("three"), user_messages("four")]
    assert [state_fields(body) for body in server.bodies] == [
        {"previous_response_id": ids[1]},
        {"previous_response_id": third_id},
    ]
    history = ["user: one", "assistant: one", "user: two", "assistant: two", "user: three", "assistant: three"]
    assert mirrored_messages(convo, "mine") == [*history, "user: four", "assistant: four"]
    assert message_lines(server.scripts.requests[-1].input) == [*history, "user: four"]


def test_an_unrecorded_conversation_is_continued_and_its_history_is_mirrored(
    server: LoopbackServer, launch: Launch, convo: Convo
) -> None:
    conversation_id = create_conversation(server, "one", "two")
    first = launch("chat", "--conversation", "--from", conversation_id, "-n", "mine", "three")
    second = launch("chat", "--from", conversation_id, "four")
    assert [first.out, second.out] == ["three\n", "four\n"]
    assert [body["input"] for body in server.bodies] == [user_messages("three"), user_messages("four")]
    assert [state_fields(body) for body in server.bodies] == [{"conversation": conversation_id}] * 2
    history = ["user: one", "assistant: one", "user: two", "assistant: two", "user: three", "assistant: three"]
    assert mirrored_messages(convo, "mine") == [*history, "user: four", "assistant: four"]
    paths = [request.path for request in server.requests if request.method == "GET"]
    assert paths == [f"/v1/conversations/{conversation_id}", f"/v1/conversations/{conversation_id}/items"]


@pytest.mark.parametrize("flags", [["--chain", "--from"], ["--from"], ["--fork"]])
def test_continuing_from_an_older_response_creates_a_branch(
    server: LoopbackServer, convo: Convo, flags: list[str]
) -> None:
    first = start_session(convo, Strategy.CHAIN)
    convo("chat", "-c", "two")
    got = convo("chat", *flags, first, "other")
    assert (got.exit, got.out) == (0, "other\n")
    assert server.bodies[-1]["input"] == user_messages("other")
    assert state_fields(server.bodies[-1]) == {"previous_response_id": first}
    assert mirrored_messages(convo, "@last") == ["user: one", "assistant: one", "user: other", "assistant: other"]
    convo("chat", "--from", "mine", "three")
    assert message_lines(server.scripts.requests[-1].input) == [
        *("user: one", "assistant: one", "user: two", "assistant: two", "user: three")
    ]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [(["--chain", "--from", "resp_nope"], "response"), (["--conversation", "--from", "conv_nope"], "conversation")],
)
def test_an_unknown_handle_changes_nothing(convo: Convo, flags: list[str], kind: str, home: Path) -> None:
    got = convo("chat", *flags, "hello")
    assert (got.exit, got.out, got.err) == (5, "", f"convo: no {kind} {flags[-1]!r}\n  try: convo sessions\n")
    assert not home.exists()


@pytest.mark.parametrize("handle", ["conv_1/../../admin", "conv_1\n  total  $0.00", "resp_" + "1" * 5_000_000], ids=len)
@pytest.mark.parametrize("argv", [("chat", "hi", "--from"), ("inspect",), ("next",)], ids=" ".join)
def test_a_malformed_id_is_not_sent_and_does_not_inject_an_output_line(
    server: LoopbackServer, convo: Convo, argv: tuple[str, ...], handle: str, home: Path
) -> None:
    before = len(server.requests)
    got = convo(*argv, handle)

    assert got.exit in (2, 5)
    assert not any(line.startswith("  total") for line in (got.out + got.err).splitlines())
    assert len(got.out + got.err) < 1000
    assert len(server.requests) == before


def test_a_malformed_id_from_a_server_is_an_error_and_does_not_inject_an_output_line(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = {"id": "resp_1\n  total  $0.00", "object": "response", "status": "completed", "output": []}
    with chat_serving() as upstream:
        monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
        upstream.stream({"type": "response.completed", "response": response})
        got = convo("chat", "--chain", "hi")

    assert got.exit == 1
    assert "openai sent the malformed id 'resp_1?  total  $0.00'" in got.err
    assert not any(line.startswith("  total") for line in (got.out + got.err).splitlines())


def test_a_handle_of_one_endpoint_is_not_sent_to_another(
    server: LoopbackServer, convo: Convo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    older = start_session(convo, Strategy.CHAIN)
    convo("chat", "-c", "two")
    (tmp_path / "other").mkdir()
    with run_loopback_server(tmp_path / "other") as other:
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        branch = convo("chat", "--chain", "--from", older, "three")
        record = convo("chat", "-c", "three")
        assert other.requests == []
    assert (branch.exit, record.exit) == (2, 2)
    assert f"{older} belongs to {server.url}, not to {other.url}\n" in branch.err
    assert record.err == (
        f"convo: session 'mine' is stored at {server.url}, but OPENAI_BASE_URL sets {other.url}"
        f" for {DEFAULT_MODELS['openai']}\n"
        "  try: leave it out, or convo convert mine --to session\n"
    )
    assert len(server.bodies) == 2


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION])
@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"])
def test_an_environment_variable_that_conflicts_with_the_record_is_refused(
    server: LoopbackServer, convo: Convo, monkeypatch: pytest.MonkeyPatch, strategy: Strategy, variable: str
) -> None:
    start_session(convo, strategy)
    endpoint = OTHER_URL if variable.endswith("URL") else f"{server.url} (other)"
    monkeypatch.setenv(variable, OTHER_URL if variable.endswith("URL") else "other")
    got = convo("chat", "-c", "two")
    assert got.exit == 2
    assert got.err.startswith(f"convo: session 'mine' is stored at {server.url}, but {variable} sets {endpoint} for ")
    assert got.err.count("\n") == 2
    assert len(server.bodies) == 1


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION])
def test_a_model_at_another_endpoint_is_refused_when_the_endpoint_owns_the_history(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    start_session(convo, strategy)
    got = convo("chat", "-c", "-m", "scripted/echo", "two")
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        f"convo: session 'mine' is stored at {server.url}, but -m sets convo's own endpoint for scripted/echo\n"
        "  try: leave it out, or convo convert mine --to session\n"
    )
    assert mirrored_messages(convo, "mine") == ["user: one", "assistant: one"]


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.REPLAY])
def test_a_model_at_another_endpoint_may_answer_when_the_client_owns_the_history(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    start_session(convo, strategy)
    second = convo("chat", "-c", "-m", "scripted/echo", "--json", "two")
    assert (second.exit, second.json()["output_text"], second.json()["usage"]["input_tokens"]) == (0, "two", 3)
    third = convo("chat", "-c", "-m", "gpt-5-mini", "three")
    assert third.exit == 0
    assert message_lines(server.bodies[1]["input"]) == [
        *("user: one", "assistant: one", "user: two", "assistant: two", "user: three")
    ]


def test_another_model_at_the_same_endpoint_may_answer_with_any_owner(server: LoopbackServer, convo: Convo) -> None:
    first = start_session(convo, Strategy.CHAIN)
    assert convo("chat", "-c", "-m", "gpt-4o-mini", "two").exit == 0
    assert server.bodies[1]["model"] == "gpt-4o-mini"
    assert state_fields(server.bodies[1]) == {"previous_response_id": first}


@pytest.mark.parametrize("model", ["gpt-5-mini", "scripted/echo"])
def test_a_response_sent_with_store_false_cannot_be_continued(server: LoopbackServer, convo: Convo, model: str) -> None:
    response = convo("chat", "-m", model, "-n", "mine", "--json", "one").json()["response_id"]
    request_count = len(server.requests)
    got = convo("chat", "--chain", "--from", response, "-m", model, "two")
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        f"convo: {response} was sent with store=false, so its endpoint cannot continue it\n"
        "  try: convo chat --fork mine\n"
    )
    assert len(server.requests) == request_count
