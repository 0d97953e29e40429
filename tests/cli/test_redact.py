"""`--redact`: no planted secret remains in any form, and the replacements are reported."""

import base64
import json
import re
from pathlib import Path

import pytest

from convo.cli import redact
from tests.cli.chat_commands import ECHO, stored_conversation, stored_sessions
from tests.command_runner import Convo, write_project_file

KEY = "sk-proj-abcdEFGH1234_ijklMNOP-5678"
MAIL = "ada@example.com"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhki\n-----END PRIVATE KEY-----"
CARD = "4111 1111 1111 1111"
ADDRESS = "203.0.113.7"
SECRETS = (
    KEY,
    MAIL,
    "MIIEvQIBADANBgkqhki",
    CARD,
    "4111111111111111",
    ADDRESS,
    "hunter2hunter2",
    "swordfish",
    "Bluebird",
)

SETTINGS = 'redact = ["Blue.ird"]\n'


def encoded(text: str) -> str:
    return f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}"


ITEMS = [
    {"role": "user", "content": f"Bluebird: my key is {KEY}, mail {MAIL}"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": f"{PEM}"}]},
    {
        "type": "function_call",
        "call_id": MAIL,
        "name": "pay",
        "arguments": json.dumps({"card": 4111111111111111, MAIL: CARD}),
    },
    {"type": "function_call_output", "call_id": MAIL, "output": f'{{"password": "swordfish", "from": "{ADDRESS}"}}'},
    {"type": "from_the_future", "metadata": {MAIL: [None, {"deep": KEY}]}, "token": "hunter2hunter2"},
    {
        "role": "user",
        "content": [{"type": "input_file", "filename": f"{MAIL}.txt", "file_data": encoded(f"{KEY} {PEM}")}],
    },
    {"role": "assistant", "content": [{"type": "output_text", "text": f"password=hunter2hunter2 at {ADDRESS}"}]},
]


@pytest.fixture(autouse=True)
def stored_secrets(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_project_file(SETTINGS)
    (tmp_path / "plain.json").write_text(json.dumps(ITEMS))
    assert convo("import", "plain.json", "--as", f"for {MAIL}").exit == 0
    assert convo("chat", *ECHO, "-s", f"Use {KEY}.", "--from", f"for {MAIL}", f"and {CARD}?").exit == 0


def remaining_secrets(text: str) -> list[str]:
    """The planted secrets that remain in `text`, including encoded and escaped ones."""
    inner = [base64.b64decode(one).decode() for one in re.findall(r"text/plain;base64,([A-Za-z0-9+/=]+)", text)]
    plain = [text, text.replace("\\u002d", "-").replace("\\u0040", "@"), *inner]
    return [secret for secret in SECRETS if any(secret in one for one in plain)]


@pytest.mark.parametrize(
    "flags",
    [
        ("--format", "replay"),
        ("--format", "jsonl"),
        ("--format", "jsonl", "--links"),
        ("--format", "markdown"),
        ("--format", "markdown", "--no-data"),
        ("--format", "html"),
        ("--format", "html", "--no-data"),
    ],
    ids=" ".join,
)
def test_no_secret_remains_in_any_export_format(convo: Convo, flags: tuple[str, ...]) -> None:
    assert len(remaining_secrets(convo("export", "@last", *flags).out)) >= 7, "they were there"
    got = convo("export", "@last", *flags, "--redact")
    assert got.exit == 0
    assert remaining_secrets(got.out + got.err) == []
    assert "[redacted-email-1]" in got.out.replace("\\u002d", "-")


def test_the_replacements_are_reported_with_their_locations(convo: Convo) -> None:
    err = convo("export", "@last", "--redact").err.splitlines()
    html_err = convo("export", "@last", "--redact", "--format", "html").err
    assert "api-key (item 1, item 5, item 6, link 1, instructions)" in html_err
    assert "redacted 1 own (item 1)" in err
    assert [line for line in err if line.startswith("redacted") and "api-key" in line] == [
        "redacted 3 api-key (item 1, item 5, item 6)"
    ]


def test_json_reports_the_replacements(convo: Convo) -> None:
    result = convo("export", "@last", "--redact", "-o", "a.html", "--json").json()
    assert {"kind": "own", "where": "item 1", "count": 1} in result["redacted"]
    assert result["not_looked_into"] == []


def test_without_the_flag_nothing_is_redacted_and_a_pattern_alone_enables_it(convo: Convo) -> None:
    assert KEY in convo("export", "@last").out
    got = convo("export", "@last", "--redact-pattern", "metadat.")
    assert "metadata" not in got.out
    assert remaining_secrets(got.out) == []


@pytest.mark.parametrize("pattern", ["(", "a*", "a{99999999999}", "(" * 3000])
def test_an_invalid_pattern_is_refused(convo: Convo, pattern: str) -> None:
    assert convo("export", "@last", "--redact-pattern", pattern).exit == 2


@pytest.mark.parametrize("pattern", ["(", "a*"])
def test_an_invalid_redact_setting_is_refused(convo: Convo, tmp_path: Path, pattern: str) -> None:
    (tmp_path / "home" / "config").mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / "config" / "config.toml").write_text(f"redact = ['{pattern}']\n")
    got = convo("export", "@last", "--redact")
    assert (got.exit, "'redact' contains" in got.err) == (2, True)


def test_a_pattern_that_exceeds_the_time_limit_is_refused(
    convo: Convo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(redact, "PATTERN_TIMEOUT_S", 0.05)
    (tmp_path / "long.json").write_text(json.dumps([{"role": "user", "content": "a" * 60}]))
    got = convo("export", "./long.json", "--redact-pattern", "(a+)+$x", "-o", "out.json")
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        "convo: '(a+)+$x' took longer than 0.05 s on one string\n  try: use a pattern without nested + or *\n"
    )
    assert not Path("out.json").exists()


def test_a_redacted_export_can_be_imported_and_does_not_change_when_redacted_again(convo: Convo) -> None:
    once = convo("export", "@last", "--redact", "--format", "replay").out
    Path("once.json").write_text(once)
    assert convo("import", "once.json", "--as", "clean").exit == 0
    again = convo("export", "clean", "--redact", "--format", "replay")
    assert (again.out, again.err) == (once, "nothing to redact was found\n")


@pytest.mark.parametrize("to", ["replay", "conversation", "chain"])
def test_a_redacted_conversion_gives_another_owner_no_secrets(convo: Convo, home: Path, to: str) -> None:
    before = stored_conversation(home, f"for {MAIL}")
    got = convo("convert", f"for {MAIL}", "--to", to, "--redact", "-m", "scripted/echo", "--json")
    assert got.exit == 0
    session = stored_sessions(home)[0]
    items, _ = stored_conversation(home, session.name)
    stored_text = json.dumps([session.name, session.instructions, session.handle, list(items), got.json()["losses"]])
    assert remaining_secrets(stored_text) == []
    assert "Use [redacted-api-key-1]." in stored_text
    assert stored_conversation(home, f"for {MAIL}") == before
