"""Every key and command of the prompt at three widths: the screens equal the recorded ones.

`python -m tests.terminal.chat_screens` writes them again; read the differences before you commit them.
"""

import os
from pathlib import Path

import pytest

from convo.cli.slash_commands import SLASH_COMMANDS
from tests.terminal.chat_screens import STEPS, WIDTHS, record_screens, screens_file

ATTEMPTS = 3
COMMON_WIDTH = 80

pytestmark = pytest.mark.needs("terminal")


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(width, marks=pytest.mark.full(every_commit=True) if width != COMMON_WIDTH else ())
        for width in WIDTHS
    ],
)
def test_every_key_and_command_shows_the_recorded_screen(columns: int, tmp_path: Path) -> None:
    """A minute that ends in between, or a slow response, changes the columns of a table: then it is recorded again."""
    expected = screens_file(columns).read_text(encoding="utf-8")
    for attempt in range(ATTEMPTS):
        (tmp_path / str(attempt)).mkdir()
        os.chdir(tmp_path / str(attempt))
        recorded = record_screens(columns, tmp_path / str(attempt))
        if recorded == expected:
            return
    assert recorded == expected


def test_the_recorded_screens_cover_every_command() -> None:
    typed = " ".join(step.keys for step in STEPS)
    assert [name for name in SLASH_COMMANDS if f"/{name}" not in typed] == ["exit"]  # /exit ends the chat
