"""Settings for the requests of a model, in an interactive chat."""

import re
from pathlib import Path

from tests.cli.chat_commands import ECHO, scripted_flags
from tests.terminal.plain_repl import run_repl
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


def test_effort_shows_and_changes_the_effort_of_the_open_chat(home: Path) -> None:
    settings = home / "config" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[request]\nreasoning_effort = "low"\n')
    lines = ["/effort", "/effort high", "/next hi", "/model scripted/slow.json", "/next hi", "/new", "/next hi"]
    got = run_repl(*ECHO, lines=[*lines, "/effort hihg", "/effort -"])
    source = f"(request.reasoning_effort from config.toml, {settings.parent})"
    assert "changes the reasoning effort: none, minimal, low, medium, high, xhigh, max\n" in got.err
    assert got.err.count(f"reasoning.effort low  {source}\n") == 2
    assert "reasoning.effort high  (set for this chat)\n" in got.err
    assert got.err.count('"effort": "high"') == 3
    assert (
        "no reasoning effort 'hihg'; the API has none, minimal, low, medium, high, xhigh, max\n  try: /effort high\n"
        in got.err
    )


def test_a_chat_with_a_model_without_efforts_refuses_to_set_one(home: Path) -> None:
    settings = home / "config" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[request]\nreasoning_effort = "low"\n')
    local = "local/smollm2-135m-instruct"
    lines = ["/effort high", "/model local", "/effort", "/effort high", "/next hi", "/status", "/model scripted/echo"]
    got = run_repl(*ECHO, lines=[*lines, "/next hi"])
    assert f"the effort high is ignored: {local} does not support a reasoning effort\n" in got.err
    assert f"{local} does not support a reasoning effort\n  try: choose another model with /model\n" in got.err
    sentence = f"request.reasoning_effort from config.toml, {settings.parent} is ignored: {local} does not support a"
    assert got.err.count(sentence) == 3  # once by itself, by /effort, by /status
    assert got.err.count('"effort": "high"') == 1


def test_a_parameter_that_the_model_refuses_suggests_the_command_of_the_chat() -> None:
    got = run_repl("-m", "local", "--reasoning-effort", "high", lines=["hi"])
    assert "does not support a reasoning effort\n  try: choose another model with /model\n" in got.err
