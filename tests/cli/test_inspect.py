"""`convo inspect` of conversations that the engine wrote to a real store."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from convo.history.records import Strategy
from convo.stores.unstored_requests import DEFAULT_RETENTION, UnstoredRequest
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import ChatWriter, chat_of, write_chats
from tests.command_runner import Convo, run_in_process, write_project_file
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]

SESSION = """\
monads
  owner        the local store (--session)
  session      monads (ses_1)
  endpoint     embedded
  model        scripted/echo
  head         4 items, @ resp_2
  unconfirmed  none
  last         11 input · 3 output
  total        2 requests · 15 input · 7 output · 4 re-sent
  continue     convo chat --from monads

response  owner    sent    ~tokens  context  input  cached  output  reasoning  model          date        time   \
status     seconds  preview
● resp_1  session  full 1        8        1      4       0       4          0  scripted/echo  2023-11-14  22:14  \
completed      0.0  What is a monad? → What is a monad?
@ resp_2  session  full 3       24        3     11       0       3          0  scripted/echo  2023-11-14  22:15  \
completed      0.0  And in Haskell? → And in Haskell?
"""


def test_a_session_shows_its_owner_its_head_and_a_line_for_each_request(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.SESSION, "What is a monad?", "And in Haskell?"))
    got = convo("inspect", "monads")
    assert (got.exit, got.out, got.err) == (0, SESSION, "")


CHAIN = """\
● resp_1    (other client)  chain  full 1         6        1
├─● resp_2  monads          chain  delta 1        6        3
├─● resp_3  (other client)  chain  delta 1        6        3
@ resp_4    monads          chain  delta 1        6        3
● resp_5    (other client)  chain  delta 1        6        5"""


def test_a_chain_shows_its_forks_and_responses_of_other_clients(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.other_client("first")
        chat = await writer.chat(Strategy.CHAIN, "monads", "second", handle="resp_1")
        await writer.other_client("other", previous_response_id="resp_1")
        await writer.retry(chat)
        await writer.other_client("onward", previous_response_id="resp_4")

    write_chats(home, script)
    lines = convo("inspect", "monads").out.splitlines()
    assert "\n".join(line[:60].rstrip() for line in lines[-5:]) == CHAIN


def test_the_total_is_that_of_the_named_conversation_and_its_forks_have_their_own(convo: Convo, home: Path) -> None:
    write_project_file('[prices."scripted/echo"]\ninput = 1000\noutput = 2000\n')
    write_chats(home, chat_of("monads", Strategy.SESSION, "one", "two"))
    assert convo("chat", "--fork", "monads@1", "--name", "side", "three four").exit == 0
    for name in ("monads", "side"):
        document = convo("inspect", name, "--json").json()
        first, head = (
            next(link for link in document["links"] if link["response_id"] == id_)
            for id_ in ("resp_1", convo("sessions", "show", name, "--json").json()["response_id"])
        )
        total, input_tokens = document["total"], first["usage"]["input_tokens"] + head["usage"]["input_tokens"]
        assert (total["requests"], total["input_tokens"], total["unpriced"]) == (2, input_tokens, 0)
        assert total["cost_usd"] == total["known_cost_usd"] == pytest.approx(first["cost_usd"] + head["cost_usd"])
        assert (document["other_requests"]["requests"], len(document["links"])) == (1, 3)
        rows = dict(line.split(None, 1) for line in convo("inspect", name).out.splitlines() if line.startswith("  "))
        assert rows["total"].startswith(f"2 requests · {input_tokens} input")
        assert rows["total"].endswith(f" · ${total['cost_usd']:.4f}")
        assert rows["others"].startswith("1 request · ")


def test_a_request_without_a_price_does_not_hide_the_cost_of_the_others(convo: Convo, home: Path) -> None:
    write_project_file('[prices."scripted/echo"]\ninput = 1000\noutput = 2000\n')
    write_chats(home, chat_of("monads", Strategy.SESSION, "one"))
    assert convo("chat", "--from", "monads", "two", *scripted_flags({"text": "No price."})).exit == 0
    document, text = convo("inspect", "monads", "--json").json(), convo("inspect", "monads").out
    known_cost = document["links"][0]["cost_usd"]
    assert (document["total"]["cost_usd"], document["total"]["known_cost_usd"]) == (None, known_cost)
    assert f" · at least ${known_cost:.4f} (1 of 2 requests has no price)\n" in text


def test_a_conversation_shows_the_responses_of_all_clients_and_the_items_missing_in_the_record(
    convo: Convo, home: Path
) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CONVERSATION, "monads", "first", "second")
        await writer.other_client("third", conversation=chat.session.handle or "")

    write_chats(home, script)
    session_output, conversation_output = convo("inspect", "monads").out, convo("inspect", "conv_1").out
    assert "  head         4 items, @ resp_2\n" in session_output
    assert "  note         the conversation has 2 items more than this record\n" in session_output
    assert [line[:26].rstrip() for line in session_output.splitlines()[-3:]] == [
        "● resp_1  monads",
        "@ resp_2  monads",
        "● resp_3  (other client)",
    ]
    assert "  head      6 items, @ resp_3\n" in conversation_output
    assert conversation_output.splitlines()[0] == "conv_1"


# -- handles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", ["monads", "mona", "ses_1", "@last", "resp_2", "./talk.json", "talk.json"])
def test_a_conversation_is_found_by_each_of_its_handles(handle: str, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.REPLAY, "one", "two"))
    got = convo("inspect", handle)
    assert (got.exit, got.err) == (0, "")
    assert "@ resp_2" in got.out


def test_an_unknown_handle_among_known_ones_prints_nothing(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.SESSION, "one"))
    got = convo("inspect", "monads", "nope", "--json")
    assert (got.exit, got.err) == (5, "")
    assert got.json() == {"error": {"code": "not_found", "message": "no session 'nope'", "hint": "convo sessions"}}


@pytest.mark.parametrize("command", ["inspect", "lint", "next", "convert --to session"])
def test_an_unknown_handle_with_the_suffix_of_a_file_is_reported_as_both(command: str, convo: Convo) -> None:
    name, *options = command.split()
    got = convo(name, "nope.json", *options)
    assert (got.exit, got.err) == (5, "convo: no session or file 'nope.json'\n  try: check the path\n")


def test_an_ambiguous_prefix_lists_its_matches(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "monads", "one")
        await writer.chat(Strategy.SESSION, "monoids", "two")

    write_chats(home, script)
    got = convo("inspect", "mon")
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        "convo: 'mon' is ambiguous; it matches\n"
        "  ses_2  session  monoids\n"
        "  ses_1  session  monads\n"
        "  try: add more characters\n"
    )


def test_inspect_creates_nothing(convo: Convo, home: Path) -> None:
    assert convo("inspect", "@last").exit == 5
    assert not home.exists()


# -- files ----------------------------------------------------------------------------------------


def test_a_name_takes_precedence_over_a_file_and_a_path_is_always_a_file(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    write_chats(home, chat_of("monads", Strategy.SESSION, "one"))
    (tmp_path / "monads").write_text("[]")
    assert convo("inspect", "monads").out.startswith("monads\n  owner        the local store")
    assert convo("inspect", "./monads").out.startswith("./monads\n  owner     the application")


def test_the_content_of_an_edited_replay_file_is_shown(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.REPLAY, "one", "two"))
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "one"}]')
    out = convo("inspect", "./talk.json").out
    assert "  head         1 item, @ resp_2\n" in out
    assert "  note         the file lacks 3 items that this record has: it was edited\n" in out


def test_a_replayed_session_without_its_file_shows_the_record(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.REPLAY, "one"))
    (tmp_path / "talk.json").unlink()
    got = convo("inspect", "monads")
    assert got.exit == 0
    assert f"{tmp_path / 'talk.json'} does not exist; this is its recorded content" in got.out


@pytest.mark.parametrize(
    ("content", "exit_code", "error"),
    [
        (None, 5, "convo: no file './x.json'\n  try: check the path\n"),
        ("[{", 2, "x.json is not JSON: "),
        ('{"a": 1}', 2, "x.json is not a list of items\n"),
        ("folder", 2, "x.json is a folder, not a replay file\n"),
    ],
)
def test_an_invalid_file_is_refused_in_one_sentence(
    content: str | None, exit_code: int, error: str, convo: Convo, tmp_path: Path
) -> None:
    if content == "folder":
        (tmp_path / "x.json").mkdir()
    elif content is not None:
        (tmp_path / "x.json").write_text(content)
    got = convo("inspect", "./x.json")
    assert (got.exit, got.out) == (exit_code, "")
    assert error in got.err


# -- output formats -------------------------------------------------------------------------------


def test_several_handles_are_screens_separated_by_a_line(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.CHAIN, "one"))
    one, both = convo("inspect", "monads").out, convo("inspect", "monads", "monads").out
    assert both == f"{one}\n{one}"


def test_a_terminal_that_cannot_encode_the_symbols_gets_ascii_ones(home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CHAIN, "monads", "one", "two")
        await writer.retry(chat)

    write_chats(home, script)
    got = run_in_process("inspect", "monads", encoding="ascii")
    assert [line.split()[0] for line in got.out.splitlines()[-3:]] == ["*", "|-*", "@"]
    assert got.out.isascii()


def test_a_pipe_gets_no_color(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    write_chats(home, chat_of("monads", Strategy.CHAIN, "one"))
    assert "\x1b" not in convo("inspect", "monads").out


# -- costs -----------------------------------------------------------------------------------------


def test_a_configured_price_shows_the_cost_of_each_request_and_the_total(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.CHAIN, "one two", "three"))
    write_project_file('[prices."scripted/echo"]\ninput = 1000\noutput = 10000\n')
    out = convo("inspect", "monads").out
    assert "  last         5 input · 1 output · $0.0150\n" in out
    assert "  total        2 requests · 7 input · 3 output · 2 re-sent · $0.0370\n" in out
    assert "cost" in out.splitlines()[-3].split()
    links = convo("inspect", "monads", "--json").json()["links"]
    assert [link["cost_usd"] for link in links] == pytest.approx([0.022, 0.015])


def test_without_a_price_no_cost_is_shown(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.CHAIN, "one two"))
    got = convo("inspect", "monads")
    assert "$" not in got.out
    assert "cost" not in got.out
    assert convo("inspect", "monads", "--json").json()["links"][0]["cost_usd"] is None


# -- characters ------------------------------------------------------------------------------------


def test_escaped_characters_of_arguments_are_shown_decoded(convo: Convo, tmp_path: Path) -> None:
    call = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "weather",
        "arguments": json.dumps({"city": "Zürich", "mood": "😀", "marks": "\u202e\u200b\x07", "path": "a\\u00fc"}),
    }
    output = {"type": "function_call_output", "call_id": "call_1", "output": "12"}
    unknown_item = {"type": "hologram", "city": "Zürich", "mark": "\u202e"}
    (tmp_path / "talk.json").write_text(json.dumps([{"role": "user", "content": "hi"}, call, output, unknown_item]))
    output_text = convo("inspect", "./talk.json", "--items").out
    expected = '"Zürich", "mood": "😀", "marks": "\\u202e\\u200b\\u0007", "path": "a\\\\u00fc"'
    assert expected in output_text
    assert '"city": "Zürich", "mark": "\\u202e"' in output_text
    for form in ("markdown", "html"):
        page = (
            convo("export", "./talk.json", "--format", form, "--no-data")
            .out.replace("&quot;", '"')
            .replace("&#34;", '"')
        )
        assert expected in page, form
    assert "Z\\u00fcrich" in convo("inspect", "./talk.json", "--raw").out


@pytest.mark.parametrize("strategy", Strategy)
def test_a_turn_number_names_the_response_of_that_turn(strategy: Strategy, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", strategy, "one", "two", "three"))
    for handle, response in (("mine@1", "resp_1"), ("mine@-1", "resp_2"), ("resp_3@2", "resp_2"), ("mine@3", "resp_3")):
        assert convo("inspect", handle, "--json").json() == convo("inspect", response, "--json").json()
    assert convo("next", "mine@1", "--json").json() == convo("next", "resp_1", "--json").json()
    assert convo("export", "mine@2").out == convo("export", "resp_2").out
    assert convo("lint", "mine@1").exit == 0


def test_a_turn_of_a_file_without_a_record_is_its_first_items(convo: Convo, tmp_path: Path) -> None:
    items = [{"type": "message", "role": role, "content": role} for role in ("user", "assistant", "user", "assistant")]
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(items))
    assert json.loads(convo("inspect", f"{file}@1", "--raw").out) == items[:2]


def test_a_turn_without_a_response_is_refused_by_name(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    nothing, missing = convo("inspect", "mine@0"), convo("inspect", "mine@2")
    assert (nothing.exit, nothing.err) == (
        5,
        "convo: no response at the end of turn 'mine@0'\n"
        "  try: convo inspect mine lists the responses; convo diff compares any turn\n",
    )
    assert (missing.exit, missing.err.splitlines()[0]) == (5, "convo: no turn '2'")


@pytest.mark.parametrize("command", ["compact", "resume", "chat hi --from", "sessions rm --yes", "inspect --watch"])
def test_a_command_for_a_whole_conversation_refuses_a_turn_by_name(command: str, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    got = convo(*command.split(), "mine@1")
    assert (got.exit, got.err) == (
        5,
        "convo: no session 'mine@1': a turn of mine is not a session\n"
        "  try: convo chat --fork mine@1 continues after that turn; omit @1 for the whole session\n",
    )
    assert convo("sessions", "show", "mine").exit == 0


@pytest.mark.parametrize(
    ("owner", "preview"), [("--chain", "compaction"), ("--session", "compaction: They planned a day in Oslo.")]
)
def test_a_terminal_names_a_compaction(
    owner: str, preview: str, convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted_flags({"text": "They planned a day in Oslo."})
    assert convo("chat", *model, owner, "-n", "oslo", "Plan a day in Oslo. " * 90).exit == 0
    assert convo("compact", "oslo").exit == 0
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    shown = run_in_process("inspect", "oslo", "--no-pager", is_terminal=True).out
    assert [line for line in shown.splitlines() if line.endswith(f"  {preview}")]
    assert f"  {preview}\n" not in convo("inspect", "oslo").out


def test_the_last_answer_is_printed_alone(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("monads", Strategy.SESSION, "What is a monad?", "And in Haskell?"))
    assert [convo("inspect", handle, "--answer").out for handle in ("@last", "monads", "resp_1", "monads@1")] == [
        "And in Haskell?\n",
        "And in Haskell?\n",
        "What is a monad?\n",
        "What is a monad?\n",
    ]
    refused = convo("inspect", "@last", "--answer", "--json")
    assert (refused.exit, refused.json()["error"]["message"]) == (2, "--answer and --json cannot be used together")


def test_a_conversation_without_an_answer_has_none_to_print(convo: Convo, tmp_path: Path) -> None:
    Path(tmp_path, "talk.json").write_text(json.dumps([{"role": "user", "content": "hello"}]))
    got = convo("inspect", str(tmp_path / "talk.json"), "--answer")
    assert (got.exit, got.out) == (1, "")
    assert "has no answer" in got.err


REFUSED = UnstoredRequest(
    "req_9",
    1_700_000_000.25,
    "chat_completions",
    "up/m",
    "failed",
    code="rate_limit_exceeded",
    client="codex 0.171.0",
    latency_s=2.5,
    request_bytes=1234,
    count=3,
)

REFUSED_VIEW = """\
req_9
  time      2023-11-14 22:13:20
  API       chat_completions
  model     up/m
  status    failed: rate_limit_exceeded
  client    codex 0.171.0
  latency   2.5 s
  size      1.2 KB sent, 0 B received
  requests  3 of this kind within a second: sizes and tokens are sums
  note      this request left no response, so its content is not stored
"""


def test_a_request_that_left_no_response_is_shown_by_its_id(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.store.add_unstored_requests([REFUSED], DEFAULT_RETENTION)

    write_chats(home, script)
    assert convo("inspect", "req_9").out == REFUSED_VIEW
    report = convo("inspect", "req_9", "--json").json()
    assert (report["code"], report["latency_s"], report["count"]) == ("rate_limit_exceeded", 2.5, 3)
    for output in ("--items", "--html=page.html"):
        refused = convo("inspect", "req_9", output)
        assert (refused.exit, refused.out) == (2, "")
        assert "req_9" in refused.err
    unknown = convo("inspect", "req_10")
    assert (unknown.exit, unknown.err.splitlines()[0]) == (5, "convo: no request 'req_10'")


def test_a_response_of_another_client_says_which_requests_were_not_recorded(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        done = replace(REFUSED, status="completed", code=None)
        rows = [REFUSED, done, replace(done, id="req_12", created_at=done.created_at + 1, count=9)]
        await writer.store.add_unstored_requests(rows, DEFAULT_RETENTION)
        await writer.other_client("first")
        await writer.chat(Strategy.SESSION, "monads", "What is a monad?")

    write_chats(home, script)
    note = "12 requests of codex 0.171.0 were not recorded: convo serve --record"
    assert [note in convo("inspect", handle).out for handle in ("resp_1", "resp_2", "monads")] == [True, False, False]


def test_commands_that_read_find_a_session_by_words_of_its_name(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("rain-in-zurich", Strategy.SESSION, "Rain?"))
    for command in (
        ["inspect", "zurich rain"],
        ["inspect", "zurich@1"],
        ["export", "zurich rain"],
        ["lint", "zurich rain"],
        ["diff", "zurich rain", "rain-in-zurich"],
        ["next", "zurich rain"],
        ["sessions", "show", "zurich rain"],
    ):
        got = convo(*command)
        assert (got.exit, "rain" in got.out.casefold() or command[0] == "diff") == (0, True), (command, got)
    for command in (["sessions", "rm", "zurich rain", "--yes"], ["sessions", "rename", "zurich rain", "snow"]):
        refused = convo(*command)
        assert refused.exit == 5
        assert refused.err.startswith("convo: no session 'zurich rain'; did you mean 'rain-in-zurich'?")
