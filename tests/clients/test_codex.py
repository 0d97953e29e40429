"""The Codex command line with the gateway as its API: one turn, in which it runs a command."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import ALIAS
from tests.clients.upstream import Upstream

SETTINGS = """
model = "{model}"
model_provider = "convo"
web_search = "disabled"
[agents]
enabled = false
[model_providers.convo]
name = "convo"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


def codex(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("codex")
    assert program
    command = [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *arguments]
    environ = {**os.environ, "CODEX_HOME": str(home)}
    return subprocess.run(
        command, cwd=home, env=environ, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120
    )


@pytest.mark.needs("codex")
def test_codex_runs_a_command_that_the_model_called_and_ends_with_its_answer(
    base_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.word = "echo 12321"
    home = tmp_path / "codex"
    home.mkdir()
    (home / "config.toml").write_text(SETTINGS.format(model=ALIAS, url=base_url), encoding="utf-8")
    result = codex(home, "Say a number.")
    assert result.returncode == 0, result.stderr
    assert "messages, the last one:" in result.stdout
    roles = [message["role"] for message in upstream.messages]
    assert roles[-3:] == ["user", "assistant", "tool"]
    assert "12321" in str(upstream.messages[-1]["content"])
