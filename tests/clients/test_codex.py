"""The Codex command line, with all its default tools, and the gateway as its API: turns with a command and a patch."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import ALIAS, CHAT_ALIAS, CLAUDE_ALIAS
from tests.clients.upstream import Call, Upstream

SETTINGS = """
model = "{model}"
model_provider = "convo"
[model_providers.convo]
name = "convo"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

PATCH = '*** Begin Patch\n*** Add File: made.txt\n+näive "line"\n*** End Patch\n'


def codex(folder: Path, model: str, base_url: str, prompt: str) -> subprocess.CompletedProcess[str]:
    """Run one turn of Codex in `folder`."""
    program, home = shutil.which("codex"), folder / "codex"
    assert program
    home.mkdir()
    (home / "config.toml").write_text(SETTINGS.format(model=model, url=base_url), encoding="utf-8")
    command = [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]
    environ = {**os.environ, "CODEX_HOME": str(home)}
    return subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120
    )


@pytest.mark.needs("codex")
def test_codex_runs_the_calls_of_the_model_and_ends_with_its_answer(
    base_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    calls: list[Call] = [
        ("call_1", "exec_command", {"cmd": "echo 12321"}),
        ("call_2", "multi_agent_v1__close_agent", {"target": "nobody"}),
    ]
    upstream.calls = [calls]

    result = codex(tmp_path, ALIAS, base_url, "Say a number.")

    assert result.returncode == 0, result.stderr
    assert "messages, the last one:" in result.stdout
    roles = [message["role"] for message in upstream.messages]
    assert roles[-3:] == ["assistant", "tool", "tool"]
    assert "12321" in str(upstream.messages[-2]["content"])
    assert "invalid agent id nobody" in str(upstream.messages[-1]["content"])
    names = {tool["function"]["name"] for tool in upstream.requests[0]["tools"]}
    assert {"exec_command", "multi_agent_v1__spawn_agent"} <= names
    assert not any("web_search" in name for name in names)


@pytest.mark.needs("codex")
@pytest.mark.parametrize("model", [pytest.param(CHAT_ALIAS, marks=pytest.mark.full), CLAUDE_ALIAS])
def test_codex_runs_a_command_and_applies_a_patch_in_one_turn(
    base_url: str, upstream: Upstream, tmp_path: Path, model: str
) -> None:
    upstream.calls = [
        [("call_1", "exec_command", {"cmd": "echo 12321"})],
        [("call_2", "apply_patch", {"input": PATCH})],
        [("call_3", "tool_search", {"query": "agents"})],
    ]

    result = codex(tmp_path, model, base_url, "Make a file.")

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "made.txt").read_text(encoding="utf-8") == 'näive "line"\n'
    assert len(upstream.requests) == 4
    assert "12321" in str(upstream.requests[1]["messages"])
    assert "made.txt" in str(upstream.requests[2]["messages"][-1])
