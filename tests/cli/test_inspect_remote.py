"""`convo inspect` of chains and conversations at a remote endpoint, over HTTP on loopback."""

from dataclasses import replace
from pathlib import Path

import pytest

from convo.history.records import Scope, Strategy
from convo.stores.base import Transaction
from tests.cli.remote_state import create_chain, create_conversation, set_unreachable_endpoint
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import Convo, write_project_file
from tests.loopback_server import LoopbackServer, error_response, run_loopback_server
from tests.utc_timezone import utc_timezone

pytestmark = pytest.mark.usefixtures("server")

__all__ = ["utc_timezone"]


def test_an_unrecorded_chain_is_read_from_its_endpoint(server: LoopbackServer, convo: Convo, home: Path) -> None:
    ids = create_chain(server, "one", "two", "three")
    got = convo("inspect", ids[2])
    assert (got.exit, got.err) == (0, "")
    assert f"  endpoint  {server.url}\n" in got.out
    assert f"  head      6 items, @ {ids[2]}\n" in got.out
    assert "  forks     this endpoint cannot list the other responses that continue a response\n" in got.out
    assert [line.split()[3] for line in got.out.splitlines()[-3:]] == ["full", "delta", "delta"]
    assert [line.split()[-3:] for line in got.out.splitlines()[-3:]] == [
        [text, "→", text] for text in ("one", "two", "three")
    ]
    assert not home.exists()


def test_each_response_is_requested_once_and_input_items_only_of_the_last_one(
    server: LoopbackServer, convo: Convo
) -> None:
    ids = create_chain(server, "one", "two", "three")
    convo("inspect", ids[2])
    paths = [request.path.removeprefix("/v1/responses/") for request in server.requests]
    assert paths == [ids[2], ids[1], ids[0], f"{ids[2]}/input_items"]


def test_fields_that_an_endpoint_does_not_return_are_null(server: LoopbackServer, convo: Convo) -> None:
    ids = create_chain(server, "one", "two")
    document = convo("inspect", ids[1], "--json").json()
    keys = list(document["items"])
    assert (document["handle"], document["strategy"], document["endpoint"], document["head"]) == (
        ids[1],
        "chain",
        server.url,
        keys[-1],
    )
    assert [link["response_id"] for link in document["links"]] == ids
    assert [link["children"] for link in document["links"]] == [None, None]
    assert [(link["sent"], link["saw"], link["output"]) for link in document["links"]] == [
        (keys[:1], keys[:1], keys[1:2]),
        (keys[2:3], keys[:3], keys[3:]),
    ]


def test_a_long_chain_is_read_page_by_page(server: LoopbackServer, convo: Convo) -> None:
    ids = create_chain(server, *(f"say {number}" for number in range(60)))
    document = convo("inspect", ids[-1], "--json").json()
    assert len(document["items"]) == 120
    assert document["links"][-1]["saw"] == {"through": list(document["items"])[118]}
    assert [len(link["sent"]) for link in document["links"]] == [1] * 60


def test_a_deleted_response_ends_the_chain_and_is_named(server: LoopbackServer, convo: Convo) -> None:
    ids = create_chain(server, "one", "two", "three")
    server.run(server.endpoint().delete(ids[0]))
    got = convo("inspect", ids[2])
    assert got.exit == 0
    assert (
        f"  note      {ids[0]} no longer exists; the tokens of earlier responses count for the response after it"
        in got.out
    )
    assert len(got.out.split("preview\n")[1].splitlines()) == 2


def test_a_conversation_is_shown_as_the_list_of_its_items(server: LoopbackServer, convo: Convo) -> None:
    handle = create_conversation(server, "one", "two")
    got = convo("inspect", handle)
    assert (got.exit, got.err) == (0, "")
    assert got.out.splitlines()[-4:] == [
        "   1  message user: one",
        "   2  message assistant: one",
        "   3  message user: two",
        "   4  message assistant: two",
    ]
    document = convo("inspect", handle, "--json").json()
    assert (document["strategy"], document["links"], len(document["items"])) == ("conversation", [], 4)


def test_a_deleted_conversation_is_not_shown_as_an_empty_one(server: LoopbackServer, convo: Convo) -> None:
    """Some servers return an empty list of items, and no error, for an unknown conversation."""
    page = '{"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false}'
    server.arm(replace(error_response(200, page), path="/v1/conversations/conv_gone/items", method="GET"))
    got = convo("inspect", "conv_gone", "--json")
    assert (got.exit, got.err) == (5, "")
    assert "conv_gone" in got.json()["error"]["message"]


def test_an_unknown_handle_exits_5(server: LoopbackServer, convo: Convo) -> None:
    got = convo("inspect", "resp_nope", "--json")
    assert (got.exit, got.err) == (5, "")
    assert "resp_nope" in got.json()["error"]["message"]


def test_the_provider_can_be_named(
    server: LoopbackServer, convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = create_chain(server, "one")
    monkeypatch.setenv("HERE_KEY", server.environ["OPENAI_API_KEY"])
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    write_project_file(
        f'model = "scripted/echo"\n[providers.here]\napi = "responses"\n'
        f'base_url = "{server.url}"\nkey_env = "HERE_KEY"\n'
    )
    unknown = convo("inspect", ids[0])
    assert (unknown.exit, unknown.out) == (5, "")
    assert unknown.err == (
        f"convo: no response {ids[0]!r}\n"
        "  try: pass --provider NAME to ask the endpoint that created it, or set CONVO_STORE to another store\n"
    )
    got = convo("inspect", ids[0], "--provider", "here")
    assert (got.exit, got.err) == (0, "")
    assert "here/gpt-5-mini" in got.out


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("nobody", "no provider 'nobody'"),
        ("scripted", "scripted stores no state; its responses are in the local store"),
    ],
)
def test_a_provider_without_an_endpoint_is_refused(provider: str, message: str, convo: Convo) -> None:
    got = convo("inspect", "resp_x", "--provider", provider)
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(f"convo: {message}\n")


def test_without_a_network_one_clear_error_is_printed(
    server: LoopbackServer, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_unreachable_endpoint(monkeypatch)
    got = convo("inspect", "resp_x")
    assert (got.exit, got.out) == (1, "")
    assert got.err.count("\n") == 2
    assert "  try: start the server; convo models --local lists those that run on this machine\n" in got.err


# -- mirrors --------------------------------------------------------------------------------------


def store_mirror(home: Path, server: LoopbackServer, ids: list[str], *texts: str) -> None:
    """Store a session whose record names the server as the owner of its chain."""

    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CHAIN, "monads", *texts)
        session = replace(chat.session, scope=Scope(server.url), handle=ids[-1], model="openai/gpt-5-mini")
        await writer.store.commit(Transaction(session=session, expected_session_head=session.head))

    write_chats(home, script)


def test_a_mirror_is_shown_without_any_request(server: LoopbackServer, convo: Convo, home: Path) -> None:
    store_mirror(home, server, create_chain(server, "one", "two"), "one", "two")
    got = convo("inspect", "monads")
    assert (got.exit, got.err) == (0, "")
    assert "@ resp_2" in got.out
    assert server.requests == []


def test_with_the_remote_option_the_endpoint_is_compared_with_the_mirror(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    ids = create_chain(server, "one", "two")
    store_mirror(home, server, ids, "one", "two")
    got = convo("inspect", "monads", "--remote")
    assert (got.exit, got.err) == (0, "")
    assert got.out.splitlines()[0] == ids[1]
    assert "  note      the local mirror is the same\n" in got.out


def test_a_difference_between_endpoint_and_mirror_is_reported(server: LoopbackServer, convo: Convo, home: Path) -> None:
    ids = create_chain(server, "one", "two", "three")
    store_mirror(home, server, ids, "one", "two")
    out = convo("inspect", "monads", "--remote").out
    assert "  note      the endpoint has 2 items more than this record\n" in out


def test_without_a_network_the_mirror_is_shown_with_a_note(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL")
    (tmp_path / "elsewhere").mkdir()
    with run_loopback_server(tmp_path / "elsewhere") as server:
        store_mirror(home, server, create_chain(server, "one"), "one")
    got = convo("inspect", "monads", "--remote")
    assert got.exit == 0
    assert got.err.endswith("; showing the local mirror\n")
    assert got.err.count("\n") == 1
    assert "@ resp_1" in got.out


def test_a_variable_with_another_endpoint_than_the_record_is_refused(
    server: LoopbackServer, convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_mirror(home, server, create_chain(server, "one"), "one")
    set_unreachable_endpoint(monkeypatch)
    got = convo("inspect", "monads", "--remote")
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(f"convo: session 'monads' is stored at {server.url}, but OPENAI_BASE_URL sets ")


def test_a_session_with_a_local_owner_has_no_remote_endpoint(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "monads", "one")

    write_chats(home, script)
    got = convo("inspect", "monads", "--remote")
    assert (got.exit, got.out) == (2, "")
    assert got.err == "convo: monads has no remote owner: its state is in this store\n  try: omit --remote\n"


def test_a_mirrored_response_is_not_requested_from_another_endpoint(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CHAIN, "monads", "one")
        session = replace(chat.session, scope=Scope("https://elsewhere.example/v1"), model="openai/gpt-5-mini")
        await writer.store.commit(Transaction(session=session, expected_session_head=session.head))

    write_chats(home, script)
    got = convo("inspect", "monads", "--remote", "--provider", "openai")
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(f"convo: resp_1 belongs to https://elsewhere.example/v1, not to {server.url}\n")
    assert server.requests == []
