"""Settings for the requests of a model, in an interactive chat."""

import re
from pathlib import Path

from tests.cli.chat_commands import ECHO, scripted_flags
from tests.terminal.pty_session import at_terminal


def test_another_model_has_its_own_settings_and_status_shows_their_sources(home: Path) -> None:
    _, other = scripted_flags({"text": "I am the other one."})
    settings = home / "config" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[request]\nverbosity = "low"\n[models."scripted/echo"]\ntemperature = 0.1\n'
        f'[models."{other}"]\ntemperature = 0.2\n'
    )
    with at_terminal("chat", *ECHO, "--top-p", "0.9", "-n", "mine", columns=200) as terminal:
        terminal.wait_for_prompt()
        status = terminal.send_line("/status")
        place = f"from config.toml, {settings.parent})"
        assert f'temperature 0.1  (models."scripted/echo".temperature {place}' in status
        assert "top_p 0.9  (set for this chat)" in status
        assert f"text.verbosity low  (request.verbosity {place}" in status
        assert '"temperature": 0.1' in terminal.send_line("/next hi")
        terminal.send_line(f"/model {other}")
        request = terminal.send_line("/next hi")
        assert re.findall(r'"(?:temperature|top_p)": ([\d.]+)', request) == ["0.2", "0.9"]
        assert "temperature 0.2  (models" in terminal.send_line("/status")
        assert terminal.end_session() == 0
