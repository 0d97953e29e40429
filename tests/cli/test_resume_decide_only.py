"""`convo resume --decide-only`: decide the pending calls of a paused run."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from tests.command_runner import Convo
from tests.runstate.snapshots import malformed, snapshot

MIXED = "0.24.0__schema1.21__parallel_mixed_decided.json"
SINGLE = "0.24.0__schema1.21__single_approval.json"
OLD_SCHEMA = "0.19.4__schema1.13__single_approval.json"
FIRST, SECOND = "toolu_DedkrgCtnz", "call_EmCJtNxtrFB7p4pvriACEhDc"
KEY = "a key that is long enough"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state with two undecided calls of two tools."""
    path = tmp_path / "state.json"
    document = json.loads(snapshot(MIXED))
    del document["context"]["function_tool_approvals"]
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def decided_state(tmp_path: Path) -> Path:
    """A state with the same two calls: the first is approved, the second rejected."""
    path = tmp_path / "state.json"
    path.write_bytes(snapshot(MIXED))
    return path


def read_decisions(convo: Convo, path: str) -> dict[str, tuple[str, bool, str | None]]:
    rows = convo("inspect", path, "--json").json()["decisions"]
    return {one["call_id"]: (one["decision"], one["always"], one["message"]) for one in rows}


def resume(convo: Convo, *flags: str, out: str = "out.json") -> dict[str, tuple[str, bool, str | None]]:
    got = convo("resume", "state.json", "--decide-only", "-o", out, *flags)
    assert (got.exit, got.out) == (0, ""), got.err
    return read_decisions(convo, f"./{out}")


def test_approvals_lists_the_calls_of_a_state_and_names_the_command_that_decides_them(
    convo: Convo, state: Path
) -> None:
    got = convo("approvals", "state.json")
    assert [line.split()[0] for line in got.out.splitlines()[1:]] == [FIRST, SECOND]
    assert got.err == f"to decide: convo resume state.json --decide-only -o decided.json --approve {FIRST}\n"
    refused = convo("approvals", "list", "state.json", "--json")
    assert refused.json()["error"]["hint"] == "convo inspect state.json --json"


def test_all_approves_every_pending_call_and_reports_each(convo: Convo, state: Path) -> None:
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--approve", "all")
    assert (got.exit, got.out) == (0, "")
    assert got.err == f"approved charge_order5 ({FIRST})\napproved restart_order ({SECOND})\n"
    assert {one[0] for one in read_decisions(convo, "./out.json").values()} == {"approve"}


@pytest.mark.parametrize("flags", [("--approve", "all"), ("--approve", "restart_order"), ("--reject", "all=why")])
def test_all_and_tool_names_never_change_an_earlier_decision(
    flags: tuple[str, str], convo: Convo, decided_state: Path, tmp_path: Path
) -> None:
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", *flags)
    assert (got.exit, got.out) == (0, "")
    note = f"charge_order5 ({FIRST}) remains approved; to change it: --reject {FIRST}"
    if "--approve" in flags:
        note = f"restart_order ({SECOND}) remains rejected; to change it: --approve {SECOND}"
    assert got.err == note + "\n"
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(snapshot(MIXED))


def test_all_does_not_change_a_sticky_decision(convo: Convo, state: Path) -> None:
    resume(convo, "--reject", f"{FIRST}=never", "--always", "--approve", SECOND, out="state.json")
    decisions = resume(convo, "--approve", "all")
    assert decisions == {FIRST: ("reject", True, "never"), SECOND: ("approve", True, None)}


def test_a_schema_version_whose_sticky_decisions_newer_releases_ignore_causes_a_note(
    convo: Convo, state: Path, tmp_path: Path
) -> None:
    flags = ("--decide-only", "-o", "out.json", "--approve", "all", "--always")
    got = convo("resume", "state.json", *flags, "--schema", "1.17")
    assert "openai-agents 0.23.1 and later ignore --always in a state of schema version 1.17" in got.err
    assert "--schema 1.18 keeps it" in got.err
    (tmp_path / "state.json").write_bytes(snapshot(OLD_SCHEMA))
    got = convo("resume", "state.json", *flags)
    assert "ignore --always in a state of schema version 1.13" in got.err
    got = convo("resume", "state.json", *flags, "--schema", "1.18")
    assert "ignore --always" not in got.err


NOT_STICKY = (
    "openai-agents 0.23.1 and later ignore --always in a state of schema version 1.17 and ask again, for these calls"
    " too; --schema 1.18 keeps it"
)
LOST_AGENT = "labels before 1.18 have no agent here: the decision applies to every agent with this tool"


@pytest.mark.parametrize(
    ("flags", "exit_code", "lines"),
    [
        ([], 3, [f"2 calls still undecided: {FIRST}, {SECOND}"]),
        (
            ["--reject", "restart_order", "--reject", f"{FIRST}=no"],
            0,
            [f"rejected charge_order5 ({FIRST})", f"rejected restart_order ({SECOND})"],
        ),
        (
            ["--edit", FIRST, "--always"],
            3,
            [
                f"approved charge_order5 ({FIRST}), with other arguments, always",
                f"1 call still undecided: {SECOND}",
            ],
        ),
        (
            ["--approve", "all", "--always", "--schema", "1.17"],
            0,
            [
                f"approved charge_order5 ({FIRST}), always",
                f"approved restart_order ({SECOND}), always",
                NOT_STICKY,
                *(
                    f"lost: $.context.function_tool_approvals[{index}].decision (that {tool} belongs to Writer):"
                    f" {LOST_AGENT}"
                    for index, tool in enumerate(("charge_order5", "restart_order"))
                ),
            ],
        ),
    ],
)
def test_the_decisions_the_losses_and_the_undecided_calls_are_printed(
    flags: list[str], exit_code: int, lines: list[str], convo: Convo, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", *flags)
    assert (got.exit, got.out, got.err.splitlines()) == (exit_code, "", lines)


REMAINS_APPROVED = f"charge_order5 ({FIRST}) remains approved; to change it: --reject {FIRST}"
REMAINS_REJECTED = f"restart_order ({SECOND}) remains rejected; to change it: --approve {SECOND}"


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        ([], []),
        (["--edit", "all"], [REMAINS_REJECTED]),
        (["--reject", "charge_order5"], [REMAINS_APPROVED]),
        (["--reject", "restart_order"], []),
        (["--approve", "all", "--reject", "all"], [REMAINS_APPROVED, REMAINS_REJECTED]),
        (["--approve", SECOND, "--approve", "all"], [f"approved restart_order ({SECOND}), was rejected"]),
        (
            ["--edit", FIRST, "--reject", SECOND],
            [f"approved charge_order5 ({FIRST}), with other arguments", f"rejected restart_order ({SECOND})"],
        ),
    ],
)
def test_decisions_on_decided_calls_are_printed(
    flags: list[str], lines: list[str], convo: Convo, decided_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", *flags)
    assert (got.exit, got.out, got.err.splitlines()) == (0, "", lines)


def test_json_has_the_decisions_the_undecided_calls_and_the_losses(convo: Convo, state: Path) -> None:
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--approve", "charge_order5", "--json")
    first = {"call_id": FIRST, "tool_name": "charge_order5", "agent": "Writer"}
    second = {"call_id": SECOND, "tool_name": "restart_order", "agent": "Writer"}
    assert (got.exit, got.err) == (3, f"approved charge_order5 ({FIRST})\n")
    assert got.json() == {
        "state_file": "out.json",
        "schema_version": "1.21",
        "decisions": [{**first, "decision": "approve", "always": False, "message": None, "authenticated": True}],
        "pending": [{**second, "arguments": '{"id": 2650, "city": "Lviv", "dry": false}'}],
        "losses": [],
    }
    got = convo("resume", "out.json", "--decide-only", "-o", "-", "--approve", "all", "--always", "--schema", "1.17")
    assert [loss.partition(":")[0] for loss in got.err.splitlines()][-1:] == ["lost"]
    got = convo(
        *("resume", "out.json", "--decide-only", "-o", "old.json", "--approve", "all", "--always"),
        *("--schema", "1.17", "--json"),
    )
    assert got.json()["losses"][-1] == {
        "path": "$.context.function_tool_approvals[1].decision",
        "what": "that restart_order belongs to Writer",
        "why": LOST_AGENT,
    }


def test_an_id_takes_precedence_over_a_tool_name_and_a_tool_name_over_all(convo: Convo, state: Path) -> None:
    assert resume(convo, "--reject", "all", "--approve", FIRST)[FIRST][0] == "approve"
    assert resume(convo, "--approve", "all", "--reject", "restart_order")[SECOND][0] == "reject"
    assert resume(convo, "--approve", "all", "--approve", "restart_order", "--reject", SECOND)[SECOND][0] == "reject"


def test_a_reason_is_stored_with_a_rejection(convo: Convo, state: Path) -> None:
    decisions = resume(convo, "--reject", f"{FIRST}=a = b, no", "--reject", SECOND)
    assert decisions == {FIRST: ("reject", False, "a = b, no"), SECOND: ("reject", False, None)}


def test_always_applies_to_later_calls(convo: Convo, state: Path) -> None:
    decisions = resume(convo, "--approve", "charge_order5", "--reject", "restart_order=never", "--always")
    assert decisions == {FIRST: ("approve", True, None), SECOND: ("reject", True, "never")}


def test_the_schema_version_is_kept_and_the_file_is_readable_only_by_its_owner(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(snapshot(OLD_SCHEMA))
    (tmp_path / "out.json").write_text("old")
    os.chmod(tmp_path / "out.json", 0o644)
    resume(convo, "--approve", "all")
    assert json.loads((tmp_path / "out.json").read_text())["$schemaVersion"] == "1.13"
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["out.json", "state.json"]


def test_a_state_file_can_be_decided_in_place(convo: Convo, state: Path) -> None:
    assert resume(convo, "--reject", "all", out="state.json")[FIRST][0] == "reject"


def test_a_dash_reads_stdin_and_writes_stdout(convo: Convo) -> None:
    got = convo("resume", "-", "--decide-only", "-o", "-", "--approve", "all", stdin=snapshot(SINGLE).decode())
    assert got.exit == 0
    again = convo("inspect", "-", "--json", stdin=got.out).json()
    assert [one["decision"] for one in again["decisions"]] == ["approve"]


def test_a_finished_run_has_no_pending_calls_and_is_written_unchanged(convo: Convo, tmp_path: Path) -> None:
    document = snapshot("0.24.0__schema1.21__run_again_cancelled.json")
    (tmp_path / "state.json").write_bytes(document)
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--approve", "all")
    assert (got.exit, got.err) == (0, "this state has no pending calls\n")
    assert json.loads((tmp_path / "out.json").read_bytes()) == json.loads(document)


# -- other schema versions, and signatures -------------------------------------------------------------


def test_an_unreleased_schema_version_is_refused(convo: Convo, state: Path) -> None:
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--schema", "1.14")
    assert (got.exit, got.err.splitlines()[0]) == (2, "convo: no release wrote the label '1.14'")
    assert "1.13, 1.15" in got.err


def test_the_signature_of_a_state_is_verified_before_a_decision(
    convo: Convo, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_SIGNING_KEY", KEY)
    resume(convo, "--sign", "--reject", "all", out="signed.json")
    verify = ("resume", "signed.json", "--decide-only", "-o", "again.json", "--verify", "--approve", "all")
    assert convo(*verify).exit == 0
    unsigned = convo("resume", "again.json", "--decide-only", "-o", "third.json", "--verify")
    assert (unsigned.exit, "has no convo signature" in unsigned.err) == (1, True)
    monkeypatch.setenv("OTHER", KEY + "!")
    wrong = convo(*verify, "--key-env", "OTHER", "--json")
    assert (wrong.exit, wrong.json()["error"]["code"]) == (1, "not_signed")


class LockedKeyring(KeyringBackend):
    """A keyring with one key, locked until a test sets `locked` to False."""

    priority = 1
    locked = True

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("it is locked")
        return KEY if (service, username) == ("convo", "CONVO_SIGNING_KEY") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


@pytest.fixture
def locked_keyring() -> Iterator[LockedKeyring]:
    previous, backend = keyring.get_keyring(), LockedKeyring()  # type: ignore[no-untyped-call]
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(previous)


def test_the_signing_key_may_be_in_the_keyring_and_a_variable_takes_precedence(
    convo: Convo, state: Path, locked_keyring: LockedKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = ("resume", "state.json", "--decide-only", "-o", "signed.json", "--reject", "all", "--sign")
    locked = convo(*sign)
    assert (locked.exit, locked.err) == (
        2,
        "convo: the keyring cannot be opened: KeyringLocked\n  try: unlock the keyring, or set CONVO_SIGNING_KEY\n",
    )
    locked_keyring.locked = False
    assert convo(*sign).exit == 0
    verify = ("resume", "signed.json", "--decide-only", "-o", "again.json", "--verify")
    assert convo(*verify).exit == 0
    monkeypatch.setenv("CONVO_SIGNING_KEY", KEY + "!")
    assert convo(*verify).exit == 1


def test_without_a_key_nothing_is_signed(convo: Convo, state: Path, locked_keyring: LockedKeyring) -> None:
    locked_keyring.locked = False
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--sign", "--key-env", "OTHER")
    assert (got.exit, "no signing key OTHER in the environment or the keyring" in got.err) == (2, True)
    assert not Path("out.json").exists()


# -- editing -------------------------------------------------------------------------------------------


def test_edited_arguments_are_approved(convo: Convo, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/441/7/")
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--edit", FIRST, "--reject", SECOND)
    assert got.err.splitlines()[0] == f"approved charge_order5 ({FIRST}), with other arguments"
    result = convo("inspect", "./out.json", "--json").json()
    assert json.loads(result["pending"][0]["arguments"]) == {"id": 7, "city": "Turin", "dry": False}
    assert [one["decision"] for one in result["decisions"]] == ["approve", "reject"]


@pytest.mark.parametrize(
    ("editor", "message"),
    [
        ("", "EDITOR is not set"),
        ("false", "false exited with 1"),
        ("./nope", "./nope cannot be run"),
        ("truncate -s 0", "JSON"),
    ],
)
def test_a_failing_editor_changes_nothing(
    editor: str, message: str, convo: Convo, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--edit", FIRST)
    assert (got.exit, message in got.err, state.with_name("out.json").exists()) == (2, True, False)


# -- refused decisions ---------------------------------------------------------------------------------

REFUSED_DECISIONS = [
    (["state.json", "--approve", "all"], 2, "resuming a run needs its agents, and none were given"),
    (["state.json", "--decide-only", "--approve", "all"], 2, "--decide-only requires -o"),
    (["state.json", "--decide-only", "-o", "out.json", "--approve", "nope"], 5, "no pending call 'nope'"),
    (
        ["state.json", "--decide-only", "-o", "out.json", "--approve", FIRST, "--reject", FIRST],
        2,
        "is given two different decisions",
    ),
    (["nope.json", "--decide-only", "-o", "out.json"], 5, "no file 'nope.json'"),
    ([".", "--decide-only", "-o", "out.json"], 2, ". is a folder, not a state"),
    (["state.json", "--decide-only", "-o", "nope/out.json"], 1, "nope is not a folder"),
    (["state.json", "--decide-only", "-o", "."], 2, ". is not a regular file, so a state cannot be written to it"),
    (["bad.json", "--decide-only", "-o", "out.json"], 2, "bad.json: $.max_turns must be a number of turns"),
    (
        ["state.json", "--decide-only", "-o", "out.json", "--always"],
        2,
        "--always requires --approve, --reject or --edit",
    ),
    (
        ["state.json", "--agent", "bot.py:desk", "--always"],
        2,
        "--always requires --approve, --reject or --edit",
    ),
    (["", "--decide-only", "-o", "out.json"], 5, "no file ''"),
    ([""], 2, "the handle is empty"),
    (["state.json", "--decide-only", "-o", ""], 2, "--out must not be empty"),
    (["state.json", "--agent", "bot.py:desk", "-o", ""], 2, "--out must not be empty"),
    (["state.json", "--agent", "bot.py:desk", "-o", "nope/out.json"], 1, "nope is not a folder"),
]


@pytest.mark.parametrize(("argv", "exit_code", "message"), REFUSED_DECISIONS, ids=lambda value: str(value)[:60])
def test_an_impossible_decision_is_refused_and_nothing_is_written(
    argv: list[str], exit_code: int, message: str, convo: Convo, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_bytes(malformed()["38_max_turns_string.json"])
    got = convo("resume", *argv)
    assert (got.exit, got.out) == (exit_code, "")
    assert message in got.err
    assert "\n  try: " in got.err
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("out", ["nope/out.json", ".", "", "signed.json"])
def test_decisions_and_losses_are_reported_only_if_the_file_was_written(
    out: str, convo: Convo, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_SIGNING_KEY", "short")
    sign = ("--sign",) if out == "signed.json" else ()
    got = convo("resume", "state.json", "--decide-only", "-o", out, "--approve", "all", "--schema", "1.13", *sign)
    assert (got.exit in (1, 2), got.out, state.parent.joinpath(out).is_file()) == (True, "", False)
    assert got.err.startswith("convo: ")
    assert "approved" not in got.err
    assert "lost" not in got.err
    assert (
        convo("resume", "state.json", "--decide-only", "-o", "out.json", "--approve", "all").err.count("approved") == 2
    )


def test_json_and_a_state_cannot_both_be_written_to_stdout(convo: Convo, state: Path) -> None:
    got = convo("resume", "state.json", "--decide-only", "-o", "-", "--json")
    assert (got.exit, got.json()["error"]["message"]) == (2, "--json and -o - would both write to stdout")


def test_a_reason_that_the_schema_version_cannot_contain_is_refused(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(snapshot("0.10.5__schema1.4__single_approval.json"))
    got = convo("resume", "state.json", "--decide-only", "-o", "out.json", "--reject", "all=why")
    assert (got.exit, "cannot contain the reason" in got.err, "--schema 1.6" in got.err) == (2, True, True)


def test_a_reason_is_written_with_a_schema_version_that_can_contain_it(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(snapshot("0.10.5__schema1.4__single_approval.json"))
    decisions = resume(convo, "--reject", "all=why", "--schema", "1.6")
    assert {one[2] for one in decisions.values()} == {"why"}


def test_every_invalid_state_is_refused_or_decided_without_a_traceback(convo: Convo, tmp_path: Path) -> None:
    for name, data in malformed().items():
        (tmp_path / name).write_bytes(data)
        got = convo("resume", name, "--decide-only", "-o", "out.json", "--approve", "all", "--json")
        assert got.exit in (0, 2), name
        assert "internal error" not in got.out, name
