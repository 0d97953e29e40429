"""Imports before the first prompt of a chat: no module that only an answer needs.

`tests.bench.startup` measures the duration; the imports determine it.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_app import HEAVY
from tests.terminal.pty_process import end_process
from tests.terminal.pty_session import PROMPT, TIMEOUT_S

pytestmark = pytest.mark.needs("terminal")

PROMPT_PACKAGES = {"prompt_toolkit"}
"""The package that draws the prompt."""

ANSWER_PACKAGES = HEAVY - PROMPT_PACKAGES | {"markdown_it", "pygments", "tomlkit", "aiohttp"}


@pytest.mark.parametrize("model", ["local", "openai/gpt-5-mini"])
def test_no_module_of_the_answer_is_imported_before_the_first_prompt(model: str, home: Path) -> None:
    import pexpect

    environ = {**os.environ, "TERM": "xterm", "OPENAI_API_KEY": "test-key"}
    command = ["-X", "importtime", "-m", "convo", "chat", "-m", model]
    options: Any = {"env": environ, "encoding": "utf-8", "timeout": TIMEOUT_S}
    child = pexpect.spawn(sys.executable, command, **options)
    child.expect(PROMPT["xterm"])
    loaded = {name.partition(".")[0] for name in re.findall(r"import time:[\s\d|]+\| +([\w.]+)", child.before)}
    end_process(child)
    assert {"convo", *PROMPT_PACKAGES} <= loaded
    assert loaded & ANSWER_PACKAGES == set()
