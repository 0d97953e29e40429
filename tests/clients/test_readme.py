"""What the README shows a client, done as it stands there."""

import re
from pathlib import Path

import pytest

from tests.clients.conftest import gateway
from tests.running import ROOT, Convo

SHOWN = "http://127.0.0.1:8788/v1"


def program(address: str) -> str:
    """The README's one Python program, with the address of a server that runs."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    assert SHOWN in blocks[0]
    return str(blocks[0]).replace(SHOWN, address)


def test_the_settings_describe_a_provider_and_an_alias(convo: Convo, tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / ".convo.toml").write_text("".join(blocks), encoding="utf-8")
    shown = convo("models", "--json").json()
    mine = next(one for one in shown["providers"] if one["name"] == "mine")
    assert shown["aliases"] == {"gpt-5-mini": "mine/some-model"}
    assert (mine["api"], mine["key"], mine["key_env"]) == ("chat", "not set", "MINE_API_KEY")


@pytest.mark.needs("weights")
def test_the_program_goes_on_from_the_built_in_models_first_answer(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    with gateway(tmp_path, "serve", "--port", "0") as address:
        exec(program(f"{address}/v1"), names)
    first, second = names["first"], names["second"]
    assert second.previous_response_id == first.id  # type: ignore[attr-defined]
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens  # type: ignore[attr-defined]
    assert second.output_text  # type: ignore[attr-defined]
