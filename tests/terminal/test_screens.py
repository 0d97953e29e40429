"""Every key and command of the prompt at three widths: the screens equal the recorded ones.

`python -m tests.terminal.chat_screens` writes them again; read the differences before you commit them.
"""

from pathlib import Path

import pytest

from convo.terminal.slash_commands import SLASH_COMMANDS
from tests.terminal.chat_screens import STEPS, WIDTHS, record_screens, screens_file

pytestmark = pytest.mark.needs("terminal")


@pytest.mark.parametrize("columns", WIDTHS)
def test_every_key_and_command_shows_the_recorded_screen(columns: int, tmp_path: Path) -> None:
    assert record_screens(columns, tmp_path) == screens_file(columns).read_text(encoding="utf-8")


def test_the_recorded_screens_cover_every_command() -> None:
    typed = " ".join(step.keys for step in STEPS)
    assert [name for name in SLASH_COMMANDS if f"/{name}" not in typed] == ["exit"]  # /exit ends the chat
