"""The examples for clients in the README, run as they are printed."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.chat_commands import scripted_flags
from tests.clients.conftest import gateway
from tests.command_runner import ROOT, Convo, write_project_file

README_BASE_URL = "http://127.0.0.1:8788/v1"


def program(address: str) -> str:
    """The client program in the README, with the address of a running server."""
    (block,) = [block for block in blocks("python") if README_BASE_URL in block]
    return block.replace(README_BASE_URL, address)


def blocks(language: str) -> list[str]:
    """The code blocks of the README in a language, unchanged."""
    matches = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [str(block) for block in matches]


def test_the_settings_describe_a_provider_and_an_alias(convo: Convo, tmp_path: Path) -> None:
    write_project_file("".join(blocks("toml")))
    output = convo("models", "--json").json()
    provider = next(entry for entry in output["providers"] if entry["name"] == "mine")
    assert output["aliases"] == {"gpt-6.1-terra": "mine/some-model", "openai/gpt-6.1-sol": "mine/some-model"}
    assert (provider["api"], provider["key"], provider["key_env"]) == ("chat", "not set", "MINE_API_KEY")


def test_the_agents_pause_and_resume_as_the_readme_shows(convo: Convo, tmp_path: Path) -> None:
    """The output equals the README exactly, except for the usage line and the path of the saved state."""
    (support,) = [block for block in blocks("python") if block.startswith("# support.py")]
    (tmp_path / "support.py").write_text(support, encoding="utf-8")
    (example,) = [block for block in blocks("console") if "--agent support.py:triage" in block]
    refund = {"name": "refund", "call_id": "call_1", "arguments": {"order": "A1", "cents": 500}}
    model = scripted_flags(
        {"call": {"name": "transfer_to_billing"}}, {"call": refund}, {"text": "Order A1 is paid back."}
    )
    for transcript in example.split("$ convo ")[1:]:
        command, *lines = transcript.splitlines()
        got = convo(*shlex.split(command), *model)
        output_lines = [line for line in (got.err + got.out).splitlines() if " · " not in line]
        assert [re.sub(r"(saved to ).*", r"\1", line) for line in output_lines] == [
            re.sub(r"(saved to ).*", r"\1", line) for line in lines if " · " not in line
        ]


@pytest.mark.needs("weights")
def test_the_program_continues_from_the_first_answer_of_the_built_in_model(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    with gateway(tmp_path, "serve", "--port", "0") as address:
        exec(program(f"{address}/v1"), names)
    first, second = names["first"], names["second"]
    assert second.previous_response_id == first.id  # type: ignore[attr-defined]
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens  # type: ignore[attr-defined]
    assert second.output_text  # type: ignore[attr-defined]
