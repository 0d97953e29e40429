"""Options that cannot be used together, missing ones and values out of range: the whole message, and no changes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convo.cli.app import make_root_group
from convo.cli.usage_errors import WORDS_BY_NAME, list_option_names
from tests.cli.agent_files import agent_flags
from tests.command_runner import Convo

AGENT = "--agent bot.py:desk"
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
PLAIN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        ("chat --json --jsonl hi", "--json and --jsonl cannot be used together", "use one of them"),
        ("chat --temperature -0.1 hi", "--temperature must be between 0 and 2", "--temperature 0.7"),
        ("chat --temperature 2.1 hi", "--temperature must be between 0 and 2", "--temperature 0.7"),
        ("chat --top-p -0.1 hi", "--top-p must be between 0 and 1", "--top-p 0.9"),
        ("chat --top-p 1.1 hi", "--top-p must be between 0 and 1", "--top-p 0.9"),
        (
            "chat --param include=5 hi",
            '--param include is not a list like ["reasoning.encrypted_content"]',
            """--param 'include=["reasoning.encrypted_content"]'""",
        ),
        (
            "chat --param include=[{}] hi",
            '--param include is not a list like ["reasoning.encrypted_content"]',
            """--param 'include=["reasoning.encrypted_content"]'""",
        ),
        (
            "chat --param tools.a=1 hi",
            '--param tools is not a list like [{"type": "web_search"}]',
            """--param 'tools=[{"type": "web_search"}]'""",
        ),
        (f"chat --param a={'[' * 101}{']' * 101} hi", "--param a is nested too deeply", "use at most 100 levels"),
        (f"chat --param {'.'.join('a' * 102)}=1 hi", "--param a is nested too deeply", "use at most 100 levels"),
        ("chat --param flex hi", "--param flex is not KEY=VALUE", "--param service_tier=flex"),
        ("chat -m=gpt hi", "short options take no '=': -m MODEL", "-m gpt"),
        ("chat --param =flex hi", "--param =flex is not KEY=VALUE", "--param service_tier=flex"),
        ("chat --param a..b=1 hi", "--param a..b=1 is not KEY=VALUE", "--param service_tier=flex"),
        ("chat --param model=x hi", "--param cannot set model", "-m MODEL"),
        ("chat --param input.text=x hi", "--param cannot set input", 'convo chat "..."'),
        ("chat --param conversation.id=x --json hi", "--param cannot set conversation", "--from conv_..."),
        ("chat --top-p 0.5 --param top_p=1 hi", "top_p is given twice", "give each field once"),
        (
            "chat --param reasoning=1 --param reasoning.effort=low hi",
            "reasoning.effort and reasoning are both given",
            "give each field once",
        ),
        (
            "chat --reasoning-effort low --param reasoning={} hi",
            "reasoning is given twice",
            "give each field once",
        ),
        (
            "chat --schema s.json --param text.format={} hi",
            "--schema and --param text.format are both given",
            "use one of them",
        ),
        (
            "chat --schema s.json --param text=1 hi",
            "--schema and --param text.format are both given",
            "use one of them",
        ),
        (
            "chat --max-output-tokens 0 hi",
            "--max-output-tokens must be at least 1",
            "--max-output-tokens 1000",
        ),
        (
            "chat --max-turns 3 --state s.json hi",
            "--max-turns applies to agent runs and needs --agent",
            "add --agent FILE.py:NAME",
        ),
        ("chat --state s.json hi", "--state applies to agent runs and needs --agent", "add --agent FILE.py:NAME"),
        (
            "chat --no-nest-history hi",
            "--nest-history applies to agent runs and needs --agent",
            "add --agent FILE.py:NAME",
        ),
        (
            "chat -c --agent none --session-limit 0 hi",
            "--session-limit applies to agent runs and needs --agent",
            "add --agent FILE.py:NAME",
        ),
        (
            f"chat {AGENT} --state - hi",
            "--state needs a file, because stdout has the answer",
            "--state FILE",
        ),
        (
            f"chat {AGENT} -s short --schema s.json hi",
            "-s and --agent cannot be used together: an agent has its own instructions",
            "leave -s out",
        ),
        (
            f"chat {AGENT} --schema s.json hi",
            "--schema and --agent cannot be used together: an agent has its own output type",
            "leave --schema out",
        ),
        ("next @last --curl --json", "--curl and --json cannot be used together", "use one of them"),
        (
            "next @last --count all",
            "--count accepts auto, endpoint, offline, not 'all'",
            "convo next --help",
        ),
        (
            f"next @last {AGENT} -s short",
            "-s and --agent cannot be used together: an agent has its own instructions",
            "leave -s out",
        ),
        ("diff a --wire --server", "--wire and --server cannot be used together", "use one of them"),
        ("diff a", "convo diff takes two handles, or one with --server", "convo diff --help"),
        ("diff a b --server", "convo diff takes one handle with --server", "convo diff --help"),
        ("lint", "no handle was given", "convo lint @last"),
        ("race --json --jsonl", "--json and --jsonl cannot be used together", "use one of them"),
        (
            "inspect a --items --raw --chart",
            "--items and --raw and --chart cannot be used together",
            "use one of them",
        ),
        ("inspect a --json --html page.html", "--json and --html cannot be used together", "use one of them"),
        ("inspect a --until-idle", "--until-idle requires --watch", "add --watch"),
        ("inspect a b --watch", "--watch accepts one handle", "convo inspect a --watch"),
        ("inspect - --watch", "--watch accepts one handle", "convo inspect - --watch"),
        (
            "inspect a --watch --chart",
            "--watch and --chart cannot be used together: --watch shows the tree of the local copy",
            "omit --chart",
        ),
        (
            "inspect a --watch --remote --provider x",
            "--watch and --remote cannot be used together: --watch shows the tree of the local copy",
            "omit --remote",
        ),
        (
            "inspect a --watch --until-idle --provider x",
            "--watch and --provider cannot be used together: --watch shows the tree of the local copy",
            "omit --provider",
        ),
        (
            "store migrate --partitions 4",
            "--partitions requires --print-sql",
            "convo store migrate --print-sql --partitions 16",
        ),
        ("store migrate --above 1", "--above requires --print-sql", "convo store migrate --print-sql --above 1"),
        (
            f"resume s.json {AGENT} --always",
            "--always requires --approve, --reject or --edit",
            "--approve CALL --always",
        ),
        (
            f"resume s.json {AGENT} --rerun c1 --always",
            "--always requires --approve, --reject or --edit",
            "--approve CALL --always",
        ),
        *(
            (
                f"resume s.json {AGENT} {option}",
                "-o -, --schema and --sign require --decide-only",
                "add --decide-only, or use -o FILE",
            )
            for option in ("-o -", "--schema 1.13", "--sign")
        ),
        (
            f"resume s.json --decide-only -o x.json {AGENT}",
            "--decide-only and --agent cannot be used together: no agent runs",
            "omit one of them",
        ),
        *(
            (
                f"resume s.json --decide-only -o x.json {option}",
                "--rerun, --output and --abort cannot be used with --decide-only",
                "convo resume RUN --agent FILE.py:NAME",
            )
            for option in ("--rerun c1", "--output c1=x", "--abort")
        ),
        ("resume s.json --decide-only", "--decide-only requires -o", "-o decided.json, or -o -"),
        (
            "resume s.json --decide-only -o x.json --sign --key-env NO_KEY",
            "no signing key NO_KEY in the environment or the keyring",
            "export NO_KEY=$(openssl rand -hex 32)",
        ),
    ],
)
def test_an_invalid_command_line_is_refused_with_its_remedy_and_creates_nothing(
    argv: str, message: str, hint: str, convo: Convo, home: Path, tmp_path: Path
) -> None:
    agent_flags()
    before = set(tmp_path.iterdir())
    got = convo(*argv.split())
    if "--json" in argv:
        error = {"code": "usage", "message": message, "hint": hint}
        assert (got.exit, got.json(), got.err) == (2, {"error": error}, "")
    else:
        assert (got.exit, got.out, got.err) == (2, "", f"convo: {message}\n  try: {hint}\n")
    assert not home.exists()
    assert {path for path in tmp_path.iterdir() if path.name != "__pycache__"} == before


@pytest.mark.parametrize(
    "argv",
    [
        "chat --temperature 0 hi",
        "chat --temperature 2 hi",
        "chat --top-p 0 hi",
        "chat --top-p 1 hi",
        "chat --max-output-tokens 1 hi",
        f"chat {AGENT} --session-limit 0 hi",
        f"chat {AGENT} --max-turns 1 --no-nest-history hi",
    ],
)
def test_the_smallest_and_the_largest_values_are_accepted(argv: str, convo: Convo) -> None:
    agent_flags()
    got = convo("chat", "-m", "scripted/echo", *argv.split()[1:])
    assert (got.exit, got.out) == (0, "hi\n"), got.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (f"chat {AGENT} --max-turns 0 hi", "--max-turns must be a whole number, at least 1"),
        (f"chat {AGENT} --session-limit -1 hi", "--session-limit must be a whole number, at least 0"),
        ("next @last --session-limit -1", "--session-limit must be a whole number, at least 0"),
        ("store migrate --partitions 1025", "--partitions must be a whole number between 0 and 1024"),
    ],
)
def test_a_number_below_the_smallest_value_is_refused(argv: str, message: str, convo: Convo, home: Path) -> None:
    agent_flags()
    got = convo(*argv.split())
    assert (got.exit, got.err.splitlines()[0]) == (2, f"convo: {message}")
    assert not home.exists()


SIMILAR_NAMES = {
    "chat": {
        "--efort": "--reasoning-effort",
        "--effort": "--reasoning-effort",
        "--modle": "--model",
        "--sytem": "--system",
        "--attatch": "--attach",
        "--temprature": "--temperature",
        "--tokens": "--max-output-tokens",
        "--max-tokens": "--max-output-tokens",
        "--max_output_tokens": "--max-output-tokens",
        "--resume": "--continue",
        "--form": "--from",
        "--quite": "--quiet",
        "--no-steam": "--no-stream",
        "--file": "--attach",
        "-f": "--attach",
        "--instructions": "--system",
        "--nosuch": "",
    },
    "export": {"--ouput": "--output", "--redat": "--redact", "-q": ""},
    "serve": {"--hst": "--host", "--prot": "--port", "-p": "--port"},
    "store prune": {"--older": "--older-than"},
    "approvals log": {"--session": "--run"},
    "convert": {"--dryrun": "--dry-run"},
    "": {
        "inspct": "inspect",
        "chta": "chat",
        "tpa": "tap",
        "lsit": "sessions",
        "histroy": "sessions",
        "rm": "sessions rm",
        "serach": "sessions search",
        "effort": "config set",
        "login": "config key set",
        "version": "--version",
        "hello": "",
        "oslo": "",
    },
    "sessions": {"delete": "rm", "m": "", "xyzzy": ""},
    "config": {"get": "list", "remove": "unset", "ste": "set"},
    "config key": {"list": "show"},
    "store": {"clean": "prune"},
}
"""The most similar name for mistyped options and commands, by command."""


@pytest.mark.parametrize("command", SIMILAR_NAMES)
def test_an_unknown_name_is_answered_with_the_most_similar_one_and_the_help(command: str, convo: Convo) -> None:
    for typed, similar in SIMILAR_NAMES[command].items():
        got = convo(*command.split(), typed)
        noun = "option" if typed.startswith("-") else "command"
        place = f" of convo {command}" if command and noun == "command" else ""
        message = f"no {noun} {typed!r}{place}" + (f"; did you mean {similar!r}?" if similar else "")
        hint = " ".join(["convo", *command.split(), "--help"])
        if not command and not similar:
            hint = "convo chat MESSAGE, to ask a model; or convo --help"
        if not command and similar and not similar.startswith("-"):
            hint = f"convo {similar} --help"
        first, second = got.err.splitlines()
        assert (got.exit, got.out, first) == (2, "", f"convo: {message}")
        value = f"(convo {command} {similar} [A-Z]+, or )?" if similar.startswith("--") else ""
        assert re.fullmatch(f"  try: {value}{re.escape(hint)}", second)


def test_an_unknown_option_is_answered_with_the_form_of_the_similar_one(convo: Convo) -> None:
    assert "  try: convo chat --param KEY=VALUE, or " in convo("chat", "-o", "temperature", "0.2").err
    assert "  try: convo chat --plain, or " not in convo("chat", "--plian").err


def list_names(command: Any, path: str = "") -> Iterator[str]:
    """Yield each command and option, alone and behind the names of the commands above it."""
    for option in list_option_names(command):
        yield from (option, f"{path} {option}".strip())
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from (name, f"{path} {name}".strip())
        yield from list_names(command.get_command(None, name), f"{path} {name}".strip())


def test_every_word_for_a_command_or_an_option_has_a_name_that_exists() -> None:
    assert set(WORDS_BY_NAME) - set(list_names(make_root_group())) == set()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("chat --temperature", "option '--temperature' requires an argument"),
        ("chat --temperature 'hot is not cold' hi", "--temperature must be a number"),
        ("serve --port abc", "--port must be a whole number"),
        ("chat --history-markers x", "option '--history-markers' requires 2 arguments"),
        ("config key unset", "missing argument 'PROVIDER'"),
        ("convert oslo", "missing option '--to'. Choose from: replay, session, conversation, chain"),
        ("convert oslo --to sesion", "--to must be one of replay, session, conversation, chain"),
        ("store stats /data/x.db", "unexpected argument: /data/x.db"),
        ("config list a b c", "unexpected arguments: b c"),
        (f"export f {'y ' * 200}", "unexpected arguments: y y y y y ..."),
        ("config key", "missing command"),
        ("chat -a '' hi", "--attach must not be empty"),
        ("chat --attach= hi", "--attach must not be empty"),
        ("store backup ''", "FILE must not be empty"),
        ("import ''", "FILE... must not be empty"),
        ("inspect", "missing argument 'HANDLE...'"),
        (f"config key set openai {KEY}", "unexpected argument: ***"),
        (f"config key set openai {PLAIN}", "unexpected argument: ***"),
    ],
)
def test_a_command_line_that_cannot_be_parsed_is_answered_with_the_help_of_its_command(
    argv: str, message: str, convo: Convo, home: Path
) -> None:
    got = convo(*shlex.split(argv))
    assert (got.exit, got.out) == (2, "")
    assert re.fullmatch(rf"convo: {re.escape(message)}\n  try: convo {argv.split()[0]}[a-z ]* --help\n", got.err)
    assert not home.exists()


def test_an_option_of_all_commands_belongs_before_the_command(convo: Convo) -> None:
    got = convo("chat", "--profile", "work", "hi")
    message = "no option '--profile' of convo chat; it belongs before the command"
    assert (got.exit, got.err) == (2, f"convo: {message}\n  try: convo --help\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("inspect @lsat --full", "no session '@lsat'; did you mean '@last'?"),
        ("inspect @", "no session '@'; did you mean '@last'?"),
        ("inspect olso --items", "no session 'olso'; did you mean 'oslo'?"),
        ("chat --fork=olso@1 -q 'a b'", "no session 'olso'; did you mean 'oslo'?"),
        ("lint --explain invalid-argument", "no rule 'invalid-argument'; did you mean 'invalid-arguments'?"),
    ],
)
def test_an_unknown_handle_or_rule_is_answered_with_the_most_similar_one(argv: str, message: str, convo: Convo) -> None:
    convo("chat", "-m", "scripted/echo", "-n", "oslo", "hi")
    got = convo(*shlex.split(argv))
    assert (got.exit, got.out, got.err.splitlines()[0]) == (5, "", f"convo: {message}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("{", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
        ("[" + "1" * 5000 + "]", "is not JSON: a number in it has too many digits"),
    ],
    ids=["empty", "incomplete", "deep", "long number"],
)
def test_a_file_that_is_not_json_is_explained_without_the_words_of_python(
    text: str, reason: str, convo: Convo, home: Path
) -> None:
    Path("items.json").write_text(text, encoding="utf-8")
    got = convo("lint", "./items.json")
    assert (got.exit, got.err.splitlines()[0]) == (2, f"convo: ./items.json {reason}")


@pytest.mark.parametrize(
    "argv",
    [
        "inspect {}",
        "inspect {}@2 --json",
        "chat -m {} hi",
        "chat -m{} hi",
        "chat -t {} hi",
        "chat --attach {} hi",
        "chat --agent {} hi",
        "chat --param {} hi",
        "store stats --store {}",
        "tap {}",
        "serve --port {}",
        "serve --port {} --json",
        "inspect --{}",
        "inspect -x{}",
        "{}",
        "trust {} http://h/v1?api_key=pw",
        "sessions {}",
        "sessions list {}",
        "sessions rm {}",
        "config set {} x",
        "config list {} --json",
        "config set providers.openai.api_key_env {}",
        "--profile {} chat hi",
        "--completion {}",
        "--config {} sessions",
        "import {}",
        "schema {}",
    ],
)
def test_no_message_repeats_a_key_in_the_place_of_a_name(argv: str, convo: Convo) -> None:
    got = convo(*argv.format(KEY).split())
    assert got.exit in (2, 5)
    assert KEY[8:24] not in got.out + got.err
    assert "internal" not in got.out + got.err


def test_a_notice_does_not_repeat_a_key(convo: Convo, home: Path) -> None:
    got = convo("config", "set", "model", KEY)
    assert got.err == f"set model to *** in {home}/config/config.toml\n"


@pytest.mark.parametrize("name", ["sk-learn-pipeline-notes-2024", "0123456789abcdef0123456789abcdef", "a@b.example"])
def test_a_name_that_is_no_key_is_repeated_unchanged(name: str, convo: Convo) -> None:
    assert convo("inspect", name).err == f"convo: no session {name!r}\n  try: convo sessions\n"


@pytest.mark.parametrize(
    ("user", "shown"),
    [("q7wn2mzk4x9c8v1b3n5l6j", "***"), ("alice", "alice"), (KEY, "***")],
    ids=["token", "user", "key"],
)
def test_a_token_is_hidden_as_the_user_of_a_url_and_a_user_is_not(user: str, shown: str, convo: Convo) -> None:
    assert f"https://{shown}@host/" in convo("inspect", f"https://{user}@host/").err


def test_a_long_message_keeps_its_beginning_and_its_end(convo: Convo) -> None:
    """A megabyte of an argument was repeated."""
    got = convo("chat", "--param", "a" * 1_000_000, "hi")
    assert got.exit == 2
    assert got.err.splitlines()[0] == f"convo: --param {'a' * 1992} … {'a' * 1983} is not KEY=VALUE"
    got = convo("chat", "--param", " ".join([KEY] * 1000), "--json", "hi")
    assert KEY[:16] not in got.json()["error"]["message"]


def test_a_name_that_is_too_long_for_a_file_is_not_found(convo: Convo) -> None:
    """The name was passed to the file system, which raised an OSError."""
    got = convo("config", "untrust", "x" * 2000)
    assert (got.exit, got.err[:27]) == (5, "convo: no file or folder 'x")


def test_a_setting_of_many_parts_is_refused_at_once(convo: Convo) -> None:
    """100,000 parts took minutes."""
    got = convo("config", "list", ".".join("ab" * 50_000))
    assert (got.exit, got.err.splitlines()[0][:20]) == (2, "convo: 'a.b.a.b.a.b.")
