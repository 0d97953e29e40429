"""Transcripts of a shell: every line of the output of many commands (see `tests.cli.transcripts`)."""

from pathlib import Path

import pytest

from tests.cli.transcripts import FOLDER, NAMES, Shell, read_steps


@pytest.mark.parametrize("name", NAMES)
def test_each_command_prints_the_recorded_output(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(name, monkeypatch.setenv)
    for step in read_steps(FOLDER / f"{name}.txt"):
        assert str(shell.run(step)) == str(step)
