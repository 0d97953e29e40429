"""Nobody answers: no network, no key, no such model. Two lines say so, and nothing changes.

What a single question asked for stands in the shell; neither a session nor a file nor an endpoint
keeps anything of it, whatever the conversation it was for.
"""

import pytest

from convo.history.records import Strategy
from tests.cli.trying import Row, World, check, world
from tests.loopback import KEY, WRONG_KEY, answers
from tests.running import Convo, Launch

__all__ = ["world"]

NOWHERE = "http://127.0.0.1:9/v1"
UNKNOWN = "http://no.such.host.invalid/v1"


def has_no_such_model(world: World) -> None:
    missing = {"message": "The model `m` does not exist.", "type": "x", "param": None, "code": "model_not_found"}
    world.server.arm(answers(404, missing), answers(404, missing))
    world.set()


def chat_server_has_no_such_model(world: World) -> None:
    world.set(CONVO_CONFIG="up.toml")
    world.file("up.toml", f'[providers.up]\napi = "chat"\nbase_url = "{world.chat.url}"\n')
    for _ in range(2):
        world.chat.refuses(
            404, {"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}}
        )


LISTS = "convo models lists the models; choose one with -m"
NOBODY = [
    Row(
        "no network",
        "-m openai/m",
        1,
        "no_connection",
        f"cannot reach openai at {NOWHERE}: *",
        "check the network and the base URL; -m local needs neither",
        lambda world: world.set(OPENAI_BASE_URL=NOWHERE),
    ),
    Row(
        "no such host",
        "-m openai/m",
        1,
        "no_connection",
        f"cannot reach openai at {UNKNOWN}: *",
        "check the network and the base URL; -m local needs neither",
        lambda world: world.set(OPENAI_BASE_URL=UNKNOWN),
    ),
    Row(
        "no chat server",
        "-m ollama/m",
        1,
        "no_connection",
        f"cannot reach ollama at {NOWHERE}: *",
        "check the network and the base URL; -m local needs neither",
        lambda world: world.set(OLLAMA_HOST="127.0.0.1:9"),
    ),
    Row(
        "a wrong key",
        "-m openai/m",
        1,
        "invalid_api_key",
        "openai refused the key: Incorrect API key provided",
        "set the key in the variable that convo models lists, or choose another model with -m",
        lambda world: world.set(OPENAI_API_KEY=WRONG_KEY),
    ),
    Row(
        "no key",
        "-m openai/m",
        1,
        "invalid_api_key",
        "openai needs a key",
        "set OPENAI_API_KEY, or choose a model with -m",
    ),
    Row("no such model", "-m openai/m", 1, "model_not_found", "openai has no model 'm'", LISTS, has_no_such_model),
    Row(
        "no such model at a chat server",
        "-m up/m",
        1,
        "model_not_found",
        "up has no model 'm'",
        LISTS,
        chat_server_has_no_such_model,
    ),
]


@pytest.mark.parametrize("target", ["", "--from mine ", "--replay --from talk.json ", "--replay --from new.json -q "])
@pytest.mark.parametrize("row", NOBODY, ids=lambda row: row.name)
def test_where_nobody_answers_two_lines_say_so_and_nothing_changes(
    row: Row, target: str, world: World, launch: Launch, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Row(row.name, f"chat {row.argv} {target}hi", row.exit, row.code, row.says, row.next, row.prepare)
    check(whole, world, launch, convo, monkeypatch)


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION])
@pytest.mark.parametrize("row", [row for row in NOBODY if row.argv == "-m openai/m"], ids=lambda row: row.name)
def test_where_nobody_answers_no_chain_and_no_conversation_begins(
    row: Row, strategy: Strategy, world: World, launch: Launch, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = f"chat {row.argv} --{strategy} hi"
    check(Row(row.name, argv, row.exit, row.code, row.says, row.next, row.prepare), world, launch, convo, monkeypatch)
    found = world.server.run(world.server.store.for_tenant(KEY).find_handles("conv_"))
    assert list(found) == []
