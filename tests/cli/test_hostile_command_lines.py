"""Random command lines with keys, control characters and long arguments: no crash and no secret."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from convo.cli.app import make_root_group
from tests.command_runner import Convo

SECRETS = (
    "sk-proj-Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa",
    "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa",
    "convo_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa-_12345",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.Zx9Yw8Vu7Ts6Rq5P",
    "https://Zx9Yw8Vu7Ts6Rq5Po4Nm3@host/v1",
    "postgresql://user:Zx9Yw8Vu7Ts6@host/db",
    "api_key=Zx9Yw8Vu7Ts6Rq5",
)
SECRET_PART = "Zx9Yw8Vu"
"""In each of `SECRETS`."""

FORMS = ("{}", "{}", "{}@2", "@{}", "\n{}", "\x1b[1m{}", "./{}.json", "openai/{}", "{}=x", "x={}", "--{}", "-{}")
WORDS = ("delete", "reset", "login", "oslo", "olso@1", "@lsat", "-", "--", "--=", "5", "nan", "a=b", "[", "'", "$HOME")
HOSTILE = ("", " ", "\x1b[31mred", "a\nb", "\x07", "\udc80", "\u202e", "\x9b31m", "é" * 3, "x" * 100_000, "a." * 50_000)

RUNS_UNTIL_STOPPED = ("serve", "tap")
"""Commands that get an invalid option, so that they do not start."""

ROOT: Any = make_root_group()


def walk_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the path of each command and the names of its options."""
    yield path, [name for param in command.params if param.param_type_name == "option" for name in param.opts]
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from walk_commands(command.get_command(None, name), (*path, name))


def make_value(random: Random) -> str:
    kind = random.random()
    if kind < 0.5:
        return random.choice(FORMS).format(random.choice(SECRETS))
    return random.choice(WORDS if kind < 0.8 else HOSTILE)


def make_command_line(random: Random, commands: list[tuple[tuple[str, ...], list[str]]]) -> list[str]:
    path, options = random.choice(commands)
    argv = [name[:-1] if random.random() < 0.1 else name for name in path]
    for _ in range(random.randrange(5)):
        option = random.choice(options or ["--nosuch"])[: None if random.random() < 0.8 else -1]
        value = make_value(random)
        argv += random.choice(([value], [option, value], [f"{option}={value}"], [f"-{option[2:3]}{value}"]))
    if random.random() < 0.2:
        random.shuffle(argv)
    if random.random() < 0.2:
        argv.append("--json")
    argv = [arg for arg in argv if arg not in ("-i", "--watch")]
    for name in RUNS_UNTIL_STOPPED:
        if name in argv:
            argv.insert(argv.index(name) + 1, "--nosuch")
    return argv


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 40))])
def test_a_hostile_command_line_is_refused_without_a_secret(seed: int, convo: Convo, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text('model = "scripted/echo"\n', encoding="utf-8")
    random, commands = Random(seed), list(walk_commands(ROOT))
    for _ in range(40):
        argv = make_command_line(random, commands)
        got = convo(*argv)
        shown = [arg[:60] for arg in argv]
        if got.exit == 0:
            continue
        text = got.out + got.err
        assert "internal error" not in text, shown
        assert SECRET_PART.lower() not in text.lower(), (shown, text[:500])
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", got.err), (shown, text[:500])
        assert len(text) < 10_000, shown
