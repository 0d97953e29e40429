"""Options that cannot be used together, missing ones and values out of range: the whole message, and no changes."""

import shlex
from pathlib import Path

import pytest

from tests.cli.agent_files import agent_flags
from tests.command_runner import Convo

AGENT = "--agent bot.py:desk"
FORMATS = "replay, jsonl, markdown, html, runstate"
DURATION = "must be a whole number followed by s, m, h, d or w, as in 30d"
PROVIDERS = "(known: anthropic, azure, deepseek, local, ollama, openai, scripted)"
OWNERS = "replay, session, conversation, chain"
TEMPERATURE_HINT = "convo chat --temperature 0.7 --top-p 0.5 hi"
REDACTED_STORE_HINT = "convo store stats --store 'postgresql://u:***@h/d'"
LONG = "x" * 201
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
STORE_HINT = "give --store another value, or omit it"


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        ("chat --json --jsonl hi", "--json and --jsonl cannot be used together", "use one of them"),
        ("chat --effort high hi", "no option '--effort'", "convo chat --reasoning-effort high hi"),
        ("chat --tokens 5 hi", "no option '--tokens'", "convo chat --max-output-tokens 5 hi"),
        ("race --turns hi", "no option '--turns'", "convo race --help"),
        ("chat --offline hi", "no option '--offline'", "convo chat -m local hi"),
        ("inspect --curl @last", "no option '--curl'", "convo next --curl @last"),
        ("chat --temperature -0.1 hi", "--temperature must be between 0 and 2", "convo chat --temperature 0.7 hi"),
        ("chat --temperature 2.1 hi", "--temperature must be between 0 and 2", "convo chat --temperature 0.7 hi"),
        ("chat --top-p -0.1 hi", "--top-p must be between 0 and 1", "convo chat --top-p 0.9 hi"),
        ("chat --top-p 1.1 hi", "--top-p must be between 0 and 1", "convo chat --top-p 0.9 hi"),
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
            "convo chat --max-output-tokens 1000 hi",
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
            "convo next @last --count auto",
        ),
        (
            f"next @last {AGENT} -s short",
            "-s and --agent cannot be used together: an agent has its own instructions",
            "leave -s out",
        ),
        ("diff a --wire --server", "--wire and --server cannot be used together", "use one of them"),
        ("diff a", "convo diff takes two handles, or one with --server", "convo diff a@1 a"),
        ("diff a b --server", "convo diff takes one handle with --server", "convo diff a --server"),
        ("lint", "no handle was given", "convo lint @last"),
        ("race --json --jsonl", "--json and --jsonl cannot be used together", "use one of them"),
        (
            "inspect a --items --raw --chart",
            "--items and --raw and --chart cannot be used together",
            "use one of them",
        ),
        ("inspect a --json --html page.html", "--json and --html cannot be used together", "use one of them"),
        ("inspect a --until-idle", "--until-idle requires --watch", "convo inspect a --until-idle --watch"),
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
        (f"chat {AGENT} --max-turns 0 hi", "--max-turns must be at least 1, not 0"),
        (f"chat {AGENT} --session-limit -1 hi", "--session-limit must be at least 0, not -1"),
        ("next @last --session-limit -1", "--session-limit must be at least 0, not -1"),
        ("store migrate --partitions 1025", "--partitions must be between 0 and 1024, not 1025"),
    ],
)
def test_a_number_below_the_smallest_value_is_refused(argv: str, message: str, convo: Convo, home: Path) -> None:
    agent_flags()
    got = convo(*argv.split())
    assert (got.exit, got.err.splitlines()[0]) == (2, f"convo: {message}")
    assert not home.exists()


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        ("approvals approve call_1 --session", "no option '--session'", "convo approvals approve call_1 --run RUN"),
        ("approvals log --session oslo", "no option '--session'", "convo approvals log --run oslo"),
        ("chat --nosuch", "no option '--nosuch'", "convo chat --help"),
        ("chat --temperature", "--temperature needs a value", "convo chat --temperature 0.7"),
        ("chat --temperature hot hi", "--temperature must be a number, not 'hot'", "convo chat --temperature 0.7 hi"),
        (
            "chat --temperature 'a: b is not c' hi",
            "--temperature must be a number, not 'a: b is not c'",
            "convo chat --temperature 0.7 hi",
        ),
        ("serve --port abc", "--port must be a whole number, not 'abc'", "convo serve --port 8788"),
        ("serve --port", "--port needs a value", "convo serve --port 8788"),
        ("resume oslo --reject", "--reject needs a value", "convo resume oslo --reject CALL"),
        ("chat --history-markers x", "--history-markers needs 2 values", "convo chat --history-markers x END"),
        ("config key unset", "missing argument 'PROVIDER'", "convo config key unset PROVIDER"),
        ("diff", "missing argument 'A'", "convo diff @last@1 @last"),
        ("convert oslo --to", "--to needs a value", "convo convert oslo --to replay"),
        (
            "convert oslo",
            "missing option '--to'; choose from replay, session, conversation, chain",
            "convo convert oslo --to replay",
        ),
        (
            "convert oslo --to sesion",
            "--to accepts replay, session, conversation, chain, not 'sesion'",
            "convo convert oslo --to session",
        ),
        ("chat -m openai hi", "-m: 'openai' is a provider, not a model", "convo chat -m openai/gpt-6.1-terra hi"),
        ("store prune --older-than 30 -y", f"--older-than {DURATION}", "convo store prune --older-than 30d -y"),
        ("tap --provider opnai -- true", f"no provider 'opnai' {PROVIDERS}", "convo tap --provider openai -- true"),
        ("store prune", "missing option '--older-than'", "convo store prune --older-than TIME"),
        ("store prune -y=x", "there is no '=' after a short option", "convo store prune --help"),
        ("store stats /data/x.db", "unexpected argument: /data/x.db", "convo store stats --store sqlite:/data/x.db"),
        ("config list a b c", "unexpected arguments: b c", "convo config list a"),
        ("approvals --json=x", "--json takes no value", "convo approvals --json"),
        ("config key", "missing command", "convo config key --help"),
        ("config get model", "no command 'get' of convo config", "convo config list model"),
        ("config remove model", "no command 'remove' of convo config", "convo config unset model"),
        ("sessions delete oslo", "no command 'delete' of convo sessions", "convo sessions rm oslo"),
        ("chat -a '' hi", "--attach must not be empty", "convo chat -a FILE hi"),
        ("chat --attach= hi", "--attach must not be empty", "convo chat --attach=FILE hi"),
        ("store backup ''", "FILE must not be empty", "convo store backup FILE"),
        ("export oslo -o ''", "--output must not be empty", "convo export oslo -o FILE"),
        ("import ''", "FILE must not be empty", "convo import FILE"),
        ("race -f ''", "--file must not be empty", "convo race -f FILE"),
        ("chat --param '' hi", "--param '' is not KEY=VALUE", "--param service_tier=flex"),
        ("chat --param 'a\nb' hi", "--param 'a\\nb' is not KEY=VALUE", "--param service_tier=flex"),
        ("chat -m '' hi", "-m must not be empty", "give -m another value, or omit it"),
        ("store stats --store ''", "--store must not be empty", "give --store another value, or omit it"),
        ("store stats --store abc", "--store must be none, memory, sqlite:PATH or postgresql://...", STORE_HINT),
        ("export oslo --format md", f"--format accepts {FORMATS}, not 'md'", "convo export oslo --format markdown"),
        ("export oslo --format=htm", f"--format accepts {FORMATS}, not 'htm'", "convo export oslo --format=html"),
        ("export oslo --format pdf -q", "no option '-q'", "convo export --help"),
        ("export --form md oslo -o x.md", "no option '--form'", "convo export --format markdown oslo -o x.md"),
        ("inspect", "missing argument 'HANDLE...'", "convo inspect @last"),
        ("convert oslo session", f"missing option '--to'; choose from {OWNERS}", "convo convert oslo --to session"),
        ("repair ./broken.json", "missing option '--as'", "convo repair ./broken.json --as fixed"),
        ("config key list", "no command 'list' of convo config key", "convo config key show"),
        ("config key add groq", "no command 'add' of convo config key", "convo config key set groq"),
        ("config model local", "no command 'model' of convo config", "convo config set model local"),
        ("config modle", "no command 'modle' of convo config", "convo config list model"),
        ("sessions inspect oslo", "no command 'inspect' of convo sessions", "convo inspect oslo"),
        ("approvals approve", "missing argument 'CALL...'", "convo approvals"),
        ("-m local hi", "no option '-m'", "convo chat -m local hi"),
        ("--limit 3 sessions", "no option '--limit'", "convo sessions --limit 3"),
        ("config --project set model x", "no option '--project'", "convo config set --project model x"),
        ("chat --profile work hi", "no option '--profile'", "convo --profile work chat hi"),
        ("--profile work inspct oslo", "no command 'inspct'", "convo --profile work inspect oslo"),
        ("chat -quiet -json hi", "no option '-u'", "convo chat --quiet --json hi"),
        ("serve -p 80", "no option '-p'", "convo serve --port 80"),
        ("serve -p80", "no option '-p'", "convo serve --port 80"),
        ("chat -fnotes.md hi", "no option '-f'", "convo chat --attach notes.md hi"),
        ("chat --temperature --top-p 0.5 hi", "--temperature must be a number, not '--top-p'", TEMPERATURE_HINT),
        ("chat --nam 'a b' x -- --form", "no option '--nam'", "convo chat --name 'a b' x -- --form"),
        ("chat --nam '\x1b[2Jx' 'a\nb'", "no option '--nam'", 'convo chat --name "..." "..."'),
        (f"chat --nam x {LONG}", "no option '--nam'", 'convo chat --name x "..."'),
        (f"chat --nam x {KEY}", "no option '--nam'", 'convo chat --name x "..."'),
        (f"config key set openai {KEY}", "unexpected argument: ...", "convo config key set openai"),
        ("store stats --stroe postgresql://u:pw@h/d", "no option '--stroe'", REDACTED_STORE_HINT),
        (f"import --as x f {'y ' * 200}", "unexpected arguments: y y y y y ...", "convo import --as x f"),
        ("sessions xyzzy", "no command 'xyzzy' of convo sessions", "convo sessions --help"),
    ],
)
def test_a_command_line_that_cannot_be_parsed_is_answered_with_a_valid_one(
    argv: str, message: str, hint: str, convo: Convo, home: Path
) -> None:
    got = convo(*shlex.split(argv))
    assert (got.exit, got.out, got.err) == (2, "", f"convo: {message}\n  try: {hint}\n")
    assert not home.exists()


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        ("inspect @lsat --full", "no session '@lsat'", "convo inspect @last --full"),
        ("inspect olso --items", "no session 'olso'; did you mean 'oslo'?", "convo inspect oslo --items"),
        ("chat --fork=olso@1 -q 'a b'", "no session 'olso'; did you mean 'oslo'?", "convo chat --fork=oslo@1 -q 'a b'"),
        ("lint --explain invalid-argument", "no rule 'invalid-argument'", "convo lint --explain invalid-arguments"),
        ("schema inspct", "no schema 'inspct'", "convo schema inspect"),
    ],
)
def test_an_unknown_name_is_answered_with_the_command_for_the_most_similar_one(
    argv: str, message: str, hint: str, convo: Convo
) -> None:
    convo("chat", "-m", "scripted/echo", "-n", "oslo", "hi")
    got = convo(*shlex.split(argv))
    assert (got.exit, got.out, got.err) == (5, "", f"convo: {message}\n  try: {hint}\n")


def test_the_value_of_an_option_is_replaced_and_not_an_equal_argument(convo: Convo) -> None:
    convo("chat", "-m", "scripted/echo", "-n", "oslo", "hi")
    got = convo("chat", "-q", "oslo", "-n", "oslo")
    assert got.err.splitlines()[1] == "  try: convo chat -q oslo -n oslo-2"


def test_a_negative_number_is_refused_with_a_command_that_passes_it_as_a_value(convo: Convo) -> None:
    got = convo("config", "set", 'prices."a/b".input', "-1")
    hint = """convo config set 'prices."a/b".input' -- -1"""
    assert (got.exit, got.err) == (2, f"convo: -1 is parsed as an option\n  try: {hint}\n")
    got = convo(*shlex.split(hint)[1:])
    assert got.err.splitlines()[0] == (
        """convo: config set: 'prices."a/b".input' must be a finite number that is not negative"""
    )


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


PLAIN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["export", f"--redact-pattern={KEY}"], "convo export --redact-pattern=... @last"),
        (["chat", "--modle", "local", "--param=api_key=hunter2222", "hi"], "convo chat --model local --param=... hi"),
        (["--profle=a\x1bb", "sessions", "ls"], "convo --profile=... sessions list"),
        (["trust", KEY, "http://h/v1?api_key=pw"], 'convo chat "..."'),
        (["store", "stats", "--store", "postgresql://u:pw@h/d\x1b[31m", "x"], 'convo store stats --store "..."'),
        (["config", "ste", "providers.openai.api_key", PLAIN], 'convo config set providers.openai.api_key "..."'),
        (["config", "key", "set", "openai", PLAIN], "convo config key set openai"),
        (["login", PLAIN], "convo config key set openai"),
        (["login", "openai", PLAIN], 'convo chat "..."'),
        (
            ["store", "stats", "postgresql://h/d?password=pw"],
            "convo store stats --store 'postgresql://h/d?password=***'",
        ),
        (["store", "stats", "https://h/d"], "convo store stats"),
        (["sessions", "--json=x", f"-n={KEY}", "-n=x"], "convo sessions --json -n... -n20"),
        (["chat", "--chian", "-cq\nb", "hi"], "convo chat --help"),
        (["chat", "--modle", "x", "-a", KEY, f"-t{KEY}", "hi"], 'convo chat --model x -a "..." -t... hi'),
    ],
)
def test_neither_message_nor_hint_has_a_secret_or_a_control_character(convo: Convo, argv: list[str], hint: str) -> None:
    """An option keeps its name, so its hidden value does not become a message or a handle."""
    result = convo(*argv)
    assert result.exit == 2
    assert result.err.splitlines()[-1].removeprefix("  try: ") == hint
    assert not any(secret in result.err for secret in (KEY, PLAIN, "hunter2222", "=pw", ":pw", "\x1b"))


@pytest.mark.parametrize("name", ["m", "r"])
def test_one_character_is_not_taken_for_a_command_that_deletes(convo: Convo, name: str) -> None:
    assert convo("sessions", name, "work").err.splitlines()[-1] == "  try: convo sessions --help"


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
    assert convo("inspct", name).err.splitlines()[1] == f"  try: convo inspect {name}"


def test_an_address_is_kept_in_a_hint(convo: Convo) -> None:
    assert convo("serve", "--hst", "10.0.0.1").err.splitlines()[1] == "  try: convo serve --host 10.0.0.1"


@pytest.mark.parametrize(
    ("user", "shown"),
    [("q7wn2mzk4x9c8v1b3n5l6j", "***"), ("alice", "alice"), (KEY, "***")],
    ids=["token", "user", "key"],
)
def test_a_token_is_hidden_as_the_user_of_a_url_and_a_user_is_not(user: str, shown: str, convo: Convo) -> None:
    got = convo("store", "stats", "--stroe", f"postgresql://{user}@host/db")
    assert got.err.splitlines()[1] in (
        f"  try: convo store stats --store postgresql://{shown}@host/db",
        f"  try: convo store stats --store 'postgresql://{shown}@host/db'",
    )
    assert f"https://{shown}@host/" in convo("inspect", f"https://{user}@host/").err


def test_a_long_message_keeps_its_beginning_and_its_end(convo: Convo) -> None:
    """A megabyte of an argument was repeated."""
    got = convo("chat", "--param", "a" * 1_000_000, "hi")
    assert got.exit == 2
    assert got.err.splitlines()[0] == f"convo: --param {'a' * 1992} … {'a' * 1983} is not KEY=VALUE"
    got = convo("chat", "--param", " ".join([KEY] * 1000), "--json", "hi")
    assert KEY[:16] not in got.json()["error"]["message"]


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        ("config set model x --modle", "convo config set --help"),
        ("config reset model", "convo config unset model"),
        ("config set editing emcas", "convo config set editing emacs"),
        ("config set request.max_output_tokns 5", "convo config set request.max_output_tokens 5"),
        ("config set request.max_output_tokens 5x", "convo config list request.max_output_tokens"),
        ("config set providers.openai.key hunter2hunter2", "convo config key set openai"),
        ("config set providers.openai.key_evn hunter2hunter2", "convo config set providers.openai.key_env VALUE"),
        (
            "config set providers.openai.base_ulr https://h/v1",
            "convo config set providers.openai.base_url https://h/v1",
        ),
    ],
)
def test_a_command_of_config_is_corrected(argv: str, hint: str, convo: Convo) -> None:
    assert convo(*argv.split()).err.splitlines()[-1] == f"  try: {hint}"


def test_a_name_that_is_too_long_for_a_file_is_not_found(convo: Convo) -> None:
    """The name was passed to the file system, which raised an OSError."""
    got = convo("config", "untrust", "x" * 2000)
    assert (got.exit, got.err[:27]) == (5, "convo: no file or folder 'x")


def test_a_setting_of_many_parts_is_refused_at_once(convo: Convo) -> None:
    """100,000 parts took minutes."""
    got = convo("config", "list", ".".join("ab" * 50_000))
    assert (got.exit, got.err.splitlines()[0][:20]) == (2, "convo: 'a.b.a.b.a.b.")


def test_a_long_unknown_command_of_config_is_not_compared_with_the_settings(convo: Convo) -> None:
    """The time of that comparison is quadratic: 100,000 parts took minutes."""
    assert convo("config", "x." * 100_000).err.splitlines()[-1] == "  try: convo config --help"
