"""No model is available: no network, no key, or an unknown model. The error has two lines, and nothing changes.

A message on the command line is still in the history of the shell, so no session, file or endpoint stores it,
with any strategy.
"""

import pytest

from convo.history.records import Strategy
from tests.cli.bad_input import BadInput, CommandEnvironment, check_bad_input, environment
from tests.combinations import rotated_combinations
from tests.command_runner import Convo, Launch
from tests.loopback_server import KEY, WRONG_KEY, error_response

__all__ = ["environment"]

UNREACHABLE_URL = "http://127.0.0.1:9/v1"
UNKNOWN_HOST_URL = "http://no.such.host.invalid/v1"


def refuse_model(environment: CommandEnvironment) -> None:
    missing = {"message": "The model `m` does not exist.", "type": "x", "param": None, "code": "model_not_found"}
    environment.server.arm(error_response(404, missing), error_response(404, missing))
    environment.set()


def refuse_chat_model(environment: CommandEnvironment) -> None:
    environment.set(CONVO_CONFIG="up.toml")
    environment.file("up.toml", f'[providers.up]\napi = "chat"\nbase_url = "{environment.chat.url}"\n')
    for _ in range(2):
        environment.chat.refuse(
            404, {"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}}
        )


MODELS_HINT = "convo models lists the models; choose one with -m"
UNAVAILABLE_MODELS = [
    BadInput(
        "no network",
        "-m openai/m",
        1,
        "no_connection",
        f"cannot reach openai at {UNREACHABLE_URL}: *",
        "start the server; convo models --local lists those that run on this machine",
        lambda env: env.set(OPENAI_BASE_URL=UNREACHABLE_URL),
    ),
    BadInput(
        "no such host",
        "-m openai/m",
        1,
        "no_connection",
        f"cannot reach openai at {UNKNOWN_HOST_URL}: *",
        "check the network and the base URL; -m local needs neither",
        lambda env: env.set(OPENAI_BASE_URL=UNKNOWN_HOST_URL),
    ),
    BadInput(
        "no chat server",
        "-m ollama/m",
        1,
        "no_connection",
        f"cannot reach ollama at {UNREACHABLE_URL}: *",
        "start it with ollama serve; convo models --local lists those that run on this machine",
        lambda env: env.set(OLLAMA_HOST="127.0.0.1:9"),
    ),
    BadInput(
        "a wrong key",
        "-m openai/m",
        1,
        "invalid_api_key",
        "openai refused the key: Incorrect API key provided",
        "set the key in the variable that convo models lists, or choose another model with -m",
        lambda env: env.set(OPENAI_API_KEY=WRONG_KEY),
    ),
    BadInput(
        "no key",
        "-m openai/m",
        1,
        "invalid_api_key",
        "openai needs a key",
        "convo config key set openai, set OPENAI_API_KEY, or choose a model with -m",
    ),
    BadInput(
        "no such model", "-m openai/m", 1, "model_not_found", "openai has no model 'm'", MODELS_HINT, refuse_model
    ),
    BadInput(
        "a model that was shut down",
        "-m openai/o4-mini",
        1,
        "model_not_found",
        "openai has no model 'o4-mini': shutdown on 2026-10-23, replaced by openai/gpt-6.1-terra",
        "-m openai/gpt-6.1-terra",
        refuse_model,
    ),
    BadInput(
        "no such model at a chat server",
        "-m up/m",
        1,
        "model_not_found",
        "up has no model 'm'",
        MODELS_HINT,
        refuse_chat_model,
    ),
]


TARGETS = ["", "--from mine ", "--replay --from talk.json ", "--replay --from new.json -q "]


@pytest.mark.parametrize(("row", "target"), rotated_combinations(UNAVAILABLE_MODELS, TARGETS))
def test_without_a_model_an_error_of_two_lines_is_printed_and_nothing_changes(
    row: BadInput,
    target: str,
    environment: CommandEnvironment,
    launch: Launch,
    convo: Convo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat_row = BadInput(row.name, f"chat {row.argv} {target}hi", row.exit, row.code, row.message, row.hint, row.prepare)
    check_bad_input(chat_row, environment, launch, convo, monkeypatch)


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION])
@pytest.mark.parametrize(
    "row", [row for row in UNAVAILABLE_MODELS if row.argv == "-m openai/m"], ids=lambda row: row.name
)
def test_without_a_model_no_chain_and_no_conversation_starts(
    row: BadInput,
    strategy: Strategy,
    environment: CommandEnvironment,
    launch: Launch,
    convo: Convo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = f"chat {row.argv} --{strategy} hi"
    check_bad_input(
        BadInput(row.name, argv, row.exit, row.code, row.message, row.hint, row.prepare),
        environment,
        launch,
        convo,
        monkeypatch,
    )
    handles = environment.server.run(environment.server.store.for_tenant(KEY).find_handles("conv_"))
    assert list(handles) == []
