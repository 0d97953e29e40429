"""After any answers and any actions of the user, the next message is accepted.

`StrictServer` refuses what the real APIs refuse. The seeds are fixed, so each run has the same sequences.
"""

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from convo.history.records import Strategy
from tests.hostile_server import run_hostile_server
from tests.sequences.conversation_sequence import ConversationSequence
from tests.sequences.strict_server import StrictServer

UPSTREAMS = {
    "chat": ("chat", "/v1", ""),
    "claude": ("anthropic", "", ""),
    "responses": ("responses", "/v1", ""),
    "stateless-responses": ("responses", "/v1", 'owner = "convo"\n'),
}
"""The API of each kind of upstream, the path of its base URL, and further settings of the provider."""

SEEDS = [
    pytest.param(range(2), id="2"),
    *(
        pytest.param(range(start, start + 25), marks=pytest.mark.full, id=str(start + 25))
        for start in range(2, 127, 25)
    ),
]
"""In a default run 2 for each of the 16 combinations, 32 in all; with `-m full` 2,000 others."""


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_after_any_answers_and_actions_the_next_message_is_accepted(
    upstream: str, strategy: Strategy, seeds: Iterable[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, path, settings = UPSTREAMS[upstream]
    monkeypatch.setenv("UP_KEY", "test-key")
    for seed in seeds:
        folder, server = tmp_path / str(seed), StrictServer(api)
        monkeypatch.setenv("CONVO_HOME", str(folder / "home"))
        (folder / "home" / "config").mkdir(parents=True)
        (folder / "home" / "data").mkdir()
        monkeypatch.chdir(folder)
        with run_hostile_server(server) as listener:
            base_url = listener.url.removesuffix("/v1") + path
            (folder / "home" / "config" / "config.toml").write_text(
                f'[providers.up]\napi = "{api}"\nbase_url = "{base_url}"\nkey_env = "UP_KEY"\n{settings}'
            )
            ConversationSequence(Random(f"{upstream} {strategy} {seed}"), strategy, server, folder).run()
