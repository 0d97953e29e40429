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

LATER_MODULES = {
    *("convo.chat.view_loader", "convo.inspect.view", "convo.runstate.document", "convo.stores.request_list"),
    *("convo.transfer.compact", "email.utils"),
}
"""Modules of /inspect, of paused runs, of the page, of compactions and of responses."""

SERVER_MODULES = {"convo.models.http"}
"""Modules for a model server; the search for one on this machine imports them when a port is open."""

PROGRAM = """
import sys
from convo.models import server_search
server_search.SERVER_KINDS = (server_search.ServerKind("Nobody", "ollama", 9),)  # this machine may have a real one
from convo.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("options", "later"),
    [
        ("-m local", LATER_MODULES | SERVER_MODULES),
        ("-m openai/gpt-5-mini", LATER_MODULES),
        ("", LATER_MODULES | SERVER_MODULES),
    ],
)
def test_no_module_of_the_answer_is_imported_before_the_first_prompt(options: str, later: set[str], home: Path) -> None:
    import pexpect

    environ = {**os.environ, "TERM": "xterm", "OPENAI_API_KEY": "test-key" if options else ""}
    command = ["-X", "importtime", "-c", PROGRAM, "chat", *options.split()]
    terminal: Any = {"env": environ, "encoding": "utf-8", "timeout": TIMEOUT_S}
    child = pexpect.spawn(sys.executable, command, **terminal)
    child.expect(PROMPT["xterm"])
    modules = set(re.findall(r"import time:[\s\d|]+\| +([\w.]+)", child.before))
    packages = {name.partition(".")[0] for name in modules}
    end_process(child)
    assert {"convo", *PROMPT_PACKAGES} <= packages
    assert (packages & ANSWER_PACKAGES) | (modules & later) == set()
