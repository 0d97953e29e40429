"""`convo next`: the request that it shows is the request that is sent next."""

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convo.config.settings import DEFAULT_MODELS
from convo.history.records import Strategy
from convo.stores.base import Store
from convo.strategies.strategy import STRATEGIES
from tests.cli.agent_files import REFUND, agent_flags, read_from_store
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.cli.remote_state import create_chain, create_conversation
from tests.cli.serve_process import config_flags, run_serve
from tests.cli.stored_chats import ChatWriter, chat_of, write_chats
from tests.command_runner import Convo, write_project_file
from tests.loopback_server import KEY, LoopbackServer, error_response


def next_request(convo: Convo, *argv: str) -> dict[str, Any]:
    """Run `convo next ... --json`; returns the printed object."""
    got = convo("next", *argv, "--json")
    assert (got.exit, got.err) == (0, "")
    request: dict[str, Any] = got.json()
    return request


# -- the shown request is the sent one -------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_the_shown_body_is_the_body_that_the_chat_sends(
    strategy: Strategy, server: LoopbackServer, convo: Convo
) -> None:
    flags = [f"--{strategy}", "-n", "mine"] + (["--from", "./talk.json"] if strategy is Strategy.REPLAY else [])
    assert convo("chat", *flags, "-s", "Be brief.", "größer?").exit == 0
    before = len(server.requests)
    preview = next_request(convo, "mine", "and then?")
    assert len(server.requests) == before

    assert convo("chat", "--from", "mine", "and then?").exit == 0

    assert json.dumps(server.bodies[-1]) == json.dumps(preview["body"])
    assert preview["url"] == f"{server.url}/responses"
    assert (preview["strategy"], preview["model"]) == (str(strategy), DEFAULT_MODELS["openai"])


MARKER_AGENTS = """
from convo.agents import Agent
from convo.tools import Context, tool

@tool
def mark(word: str) -> str:
    "Mark a word."
    return word

def spoken(context: Context) -> str:
    return f"You serve {context.values['who']}."

def last_marked(data):
    data.items[-1] = {**data.items[-1], "content": "MARKED"}
    return data

other = Agent("other")
desk = Agent("desk", spoken, settings={"temperature": 0.5}, tools=(mark,), handoffs=(other,))
"""


@pytest.mark.parametrize("strategy", Strategy)
def test_for_agents_the_shown_body_has_their_instructions_and_tools(
    strategy: Strategy, server: LoopbackServer, convo: Convo
) -> None:
    Path("who.json").write_text('{"who": "Ada"}')
    desk = [*agent_flags("desk", MARKER_AGENTS), "--context", "who.json", "--input-filter", "bot.py:last_marked"]
    limit = [] if STRATEGIES[strategy].is_server_side else ["--session-limit", "1"]
    flags = [f"--{strategy}", "-n", "mine"] + (["--from", "./talk.json"] if strategy is Strategy.REPLAY else [])
    assert convo("chat", *flags, *desk, "hello").exit == 0
    before = len(server.requests)
    preview = next_request(convo, "mine", "and then?", *desk, *limit)
    assert len(server.requests) == before

    assert convo("chat", "--from", "mine", *desk, *limit, "and then?").exit == 0

    assert json.dumps(server.bodies[-1]) == json.dumps(preview["body"])
    assert [tool["name"] for tool in preview["body"]["tools"]] == ["mark", "transfer_to_other"]
    assert (preview["body"]["instructions"], preview["body"]["temperature"]) == ("You serve Ada.", 0.5)
    assert [item["content"] for item in preview["body"]["input"]][-1] == "MARKED"


def test_an_unfinished_run_between_two_turns_shows_the_request_that_continues_it(
    server: LoopbackServer, convo: Convo
) -> None:
    handoff = {"call": {"name": "transfer_to_other", "call_id": "h0"}}
    server.replies(handoff, {"error": {"code": "invalid_prompt", "message": "No.", "status": 400}}, {"text": "Here."})
    desk = [
        *agent_flags("desk", MARKER_AGENTS.replace('Agent("other")', 'Agent("other", "Be other.")')),
        "--context",
        "who.json",
    ]
    Path("who.json").write_text('{"who": "Ada"}')
    assert convo("chat", "-n", "mine", *desk, "hello").exit == 1
    preview = next_request(convo, "mine", *desk)
    assert json.dumps(server.bodies[-1]) == json.dumps(preview["body"])
    assert (preview["body"]["instructions"], len(preview["body"]["input"])) == ("Be other.", 3)
    assert next_request(convo, "mine", "else?", *desk)["body"]["instructions"] == "Be other."
    Path("lost.py").write_text(MARKER_AGENTS.replace('"other"', '"other", model="nope/x"'))
    got = convo("next", "mine", "--agent", "lost.py:desk", *desk[2:])
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith("convo: an agent's model: no provider 'nope' for 'nope/x' (known: ")


@pytest.mark.parametrize("argv", [[], ["hello"], ["--agent", "bot.py:desk"]])
def test_a_paused_run_has_no_next_request_before_a_decision(argv: list[str], convo: Convo, home: Path) -> None:
    assert convo("chat", "-n", "mine", *agent_flags(), *scripted_flags(REFUND), "pay").exit == 3
    got = convo("next", "mine", *argv)
    assert (got.exit, got.out) == (1, "")
    assert "'mine' has an open agent run, and its calls have no output yet" in got.err
    assert "convo approvals" in got.err


def test_previewing_an_agent_request_stores_nothing(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one"))

    async def read_records(store: Store) -> tuple[object, ...]:
        session = await store.session("mine")
        return session, *await store.sessions(), *await store.agent_runs()

    before = read_from_store(home, read_records)
    next_request(convo, "mine", "two", *agent_flags(), *ECHO)
    assert read_from_store(home, read_records) == before


def test_an_invalid_replay_file_does_not_prevent_a_preview_for_agents(convo: Convo, tmp_path: Path) -> None:
    convo("chat", "--replay", "-n", "mine", *ECHO, "one")
    (tmp_path / "conversation.json").write_text("{")
    assert "one" in convo("next", "mine", "two", *agent_flags(), *ECHO).out


def test_an_agent_option_without_agents_is_refused(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one"))
    got = convo("next", "mine", "--session-limit", "3")
    assert (got.exit, "--session-limit applies to agent runs and needs --agent" in got.err) == (2, True)


@pytest.mark.parametrize(
    ("strategy", "prepended", "sent"),
    [(Strategy.REPLAY, 0, 3), (Strategy.SESSION, 0, 3), (Strategy.CONVERSATION, 2, 1), (Strategy.CHAIN, 2, 1)],
)
def test_items_prepended_by_the_server_are_shown_separately(
    strategy: Strategy, prepended: int, sent: int, convo: Convo, home: Path
) -> None:
    write_chats(home, chat_of("mine", strategy, "one"))
    preview = next_request(convo, "mine", "two")
    assert (len(preview["before"]["items"]), len(preview["body"]["input"])) == (prepended, sent)
    assert preview["before"]["owner"] == {"chain": "resp_1", "conversation": "conv_1"}.get(strategy)
    assert [part["items"] for part in preview["parts"]] == ([prepended] if prepended else []) + [sent]


def test_a_response_is_continued_as_a_chain_with_the_fields_of_its_request(
    server: LoopbackServer, convo: Convo
) -> None:
    first, second = create_chain(server, "one", "two")
    preview = next_request(convo, second, "three", "--provider", "openai")
    assert preview["body"]["previous_response_id"] == second
    assert len(preview["before"]["items"]) == 4
    assert next_request(convo, first, "--provider", "openai")["before"]["owner"] == first


def test_an_unrecorded_conversation_is_continued(server: LoopbackServer, convo: Convo) -> None:
    handle = create_conversation(server, "one")
    preview = next_request(convo, handle, "two")
    assert preview["body"]["conversation"] == handle
    assert len(preview["before"]["items"]) == 2


def test_the_tools_and_instructions_of_a_gateway_client_are_sent_again(convo: Convo, home: Path) -> None:
    tool = {"type": "function", "name": "tea", "parameters": {"type": "object"}, "strict": True}

    async def script(writer: ChatWriter) -> None:
        body = {"model": "scripted/echo", "input": "hi", "tools": [tool], "instructions": "Be brief."}
        async for _ in writer.endpoint.create(body):
            pass

    write_chats(home, script)
    preview = next_request(convo, "resp_1", "and?")
    assert [preview["body"]["tools"], preview["body"]["instructions"]] == [[tool], "Be brief."]
    assert [part["part"] for part in preview["parts"]] == ["tools", "instructions", "held by resp_1", "input"]


def test_a_response_of_a_client_owned_history_is_continued_with_all_of_it(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one", "two"))
    preview = next_request(convo, "resp_1", "other")
    assert preview["strategy"] == "session"
    assert [item["content"][0]["text"] for item in preview["body"]["input"]] == ["one", "one", "other"]


def test_all_items_of_a_file_are_replayed(tmp_path: Path, convo: Convo) -> None:
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "hi"}]')
    preview = next_request(convo, "./talk.json", "and?", *ECHO)
    assert preview["body"]["input"][0] == {"role": "user", "content": "hi"}
    assert (preview["strategy"], preview["body"]["store"]) == ("replay", False)


def test_attachments_model_and_instructions_are_accepted_as_in_a_chat(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    (tmp_path / "notes.md").write_text("# Notes")
    _, other = scripted_flags({"text": "fine"})
    body = next_request(convo, "mine", "read", "this", "-a", "notes.md", "-m", other, "-s", "Slowly.", "--store")[
        "body"
    ]
    assert (body["model"], body["instructions"], body["store"]) == (other, "Slowly.", True)
    assert [part["text"] for part in body["input"][-1]["content"]] == ["read this", "notes.md:\n# Notes"]


# -- no side effects -------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--json"], ["--curl"]])
def test_nothing_is_stored_and_nothing_is_written(flags: list[str], convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.REPLAY, "one"))
    (tmp_path / "talk.json").chmod(0o400)
    before = convo("inspect", "mine", "--json").out, (tmp_path / "talk.json").read_bytes()
    assert convo("next", "mine", "two", *flags).exit == 0
    assert (convo("inspect", "mine", "--json").out, (tmp_path / "talk.json").read_bytes()) == before


# -- token counts ----------------------------------------------------------------------------------


COUNTED = ("-m", "openai/gpt-4o")
"""A model with a known tokenizer."""


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
def test_a_server_counts_the_tokens_on_request(strategy: Strategy, server: LoopbackServer, convo: Convo) -> None:
    assert convo("chat", f"--{strategy}", *COUNTED, "-n", "mine", "one two three").exit == 0
    preview = next_request(convo, "mine", "four", "--count", "endpoint")
    assert (preview["tokens"], preview["counted_by"], preview["window"]) == (7, "the endpoint", 128_000)
    assert server.requests[-1].path == "/v1/responses/input_tokens"
    assert next_request(convo, "mine", "four")["counted_by"] == "o200k_base"


def test_a_server_that_cannot_count_is_replaced_by_the_tokenizer(server: LoopbackServer, convo: Convo) -> None:
    assert convo("chat", *COUNTED, "-n", "mine", "one two three").exit == 0
    server.arm(replace(error_response(404, {"message": "no such route"}), path="/v1/responses/input_tokens"))
    preview = next_request(convo, "mine", "four", "--count", "endpoint")
    assert preview["counted_by"] == "o200k_base"
    assert preview["estimated"] is False


# -- the curl command ------------------------------------------------------------------------------


def run(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a printed command in a shell."""
    environ = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(["/bin/sh", "-c", command], env=environ, capture_output=True, encoding="utf-8", check=False)


SPECIAL_TEXT = 'it\'s "$HOME" `id` \\ $(id) \x7f größer 😀 !! %s\nEND_OF_REQUEST\nand?'


@pytest.mark.needs("curl")
@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN, Strategy.CONVERSATION])
def test_the_printed_curl_command_works_with_convo_serve(strategy: Strategy, convo: Convo, home: Path) -> None:
    assert convo("chat", f"--{strategy}", "-n", "mine", *ECHO, "one").exit == 0
    with run_serve() as server:
        got = convo("next", "mine", SPECIAL_TEXT, "--curl", "--url", str(server.http.base_url.join("/v1")))
        done = run(got.out)
    assert (done.returncode, done.stderr) == (0, "")
    event = json.loads(done.stdout.split("event: response.completed\ndata: ")[1].splitlines()[0])
    assert event["response"]["output"][0]["content"][0]["text"] == SPECIAL_TEXT
    assert got.err == "this request goes to convo's own endpoint; start it with convo serve\n"


CURL_OF_AZURE = """\
curl -sS -N https://me.openai.azure.com/openai/v1/responses \\
  -H 'Content-Type: application/json' \\
  -H "Authorization: Bearer ${VARIABLE}" \\
  --data-binary @- <<'END_OF_REQUEST'
{
  "model": "gpt",
  "input": [
    {
      "role": "user",
      "content": "hi"
    },
    {
      "type": "message",
      "role": "user",
      "content": [
        {
          "type": "input_text",
          "text": "two"
        }
      ]
    }
  ],
  "store": false,
  "stream": true
}
END_OF_REQUEST
"""


@pytest.mark.parametrize("variable", ["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"])
def test_the_printed_curl_command_names_the_variable_of_the_token_or_else_of_the_key(
    variable: str, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("talk.json").write_text('[{"role": "user", "content": "hi"}]')
    for name, value in (
        ("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com"),
        ("AZURE_OPENAI_API_KEY", KEY),
        (variable, KEY),
    ):
        monkeypatch.setenv(name, value)
    got = convo("next", "./talk.json", "two", "-m", "azure/gpt", "--curl")
    assert (got.exit, got.out, got.err) == (0, CURL_OF_AZURE.replace("VARIABLE", variable), "")


@pytest.mark.needs("curl")
def test_the_printed_curl_command_reads_the_key_from_a_variable(server: LoopbackServer, convo: Convo) -> None:
    assert convo("chat", "--chain", "-n", "mine", "one").exit == 0
    command = convo("next", "mine", SPECIAL_TEXT, "--curl").out
    assert KEY not in command
    assert '"Authorization: Bearer ${OPENAI_API_KEY}"' in command
    done = run(command, OPENAI_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert server.bodies[-1]["input"][0]["content"][0]["text"] == SPECIAL_TEXT


def test_the_printed_curl_command_has_the_address_and_key_of_convo_serve(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one"))
    config = config_flags(tmp_path, '[serve]\nhost = "::1"\nport = 9000\nkeys_file = "keys"\n')
    command = convo(*config, "next", "mine", "two", "--curl").out
    arguments = shlex.split(command.partition(" --data-binary")[0].replace("\\\n", " "))
    assert arguments[:4] == ["curl", "-sS", "-N", "http://[::1]:9000/v1/responses"]
    assert "Authorization: Bearer ${CONVO_KEY}" in arguments


# -- the screen ------------------------------------------------------------------------------------


def test_the_screen_shows_the_prepended_items_the_request_and_the_token_counts(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one"))
    lines = convo("next", "mine", "two", "--count", "offline").out.splitlines()
    assert lines[:5] == [
        "2 items of resp_1 prepended by the server",
        "   1  message user: one",
        "   2  message assistant: one",
        "",
        "to convo's own endpoint, in this process",
    ]
    body = "\n".join(lines[5 : lines.index("part            items  tokens") - 1])
    assert json.loads(body) == next_request(convo, "mine", "two")["body"]
    assert lines[-5:-2] == ["part            items  tokens", "held by resp_1      2  ~10", "input               1  ~5"]
    assert lines[-2:] == [
        "~15 tokens, estimated; context window unknown",
        "set it: convo config set 'windows.\"scripted/echo\".context' TOKENS",
    ]


def test_a_configured_context_window_determines_the_remaining_tokens(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one two three"))
    write_project_file('[windows]\n"scripted/echo" = { context = 100 }\n')
    preview = next_request(convo, "mine", "four")
    assert (preview["window"], preview["left"]) == (100, 93)
    assert "7.0% of the context window of 100" in convo("next", "mine", "four").out
