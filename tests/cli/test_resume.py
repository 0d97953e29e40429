"""`convo resume --agent`: resume a paused run from its state file, from stdin or from the store."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from convo.history.canonical import item_hash
from convo.stores.base import Store
from tests.call_count import CallCount
from tests.cli.agent_files import (
    AGENTS,
    ASK_DESK,
    LOOK_UP,
    PAID_BACK,
    REFUND,
    agent_flags,
    nested_agent_flags,
    read_from_store,
    stored_runs,
    tool_runs,
    two_refund_calls,
)
from tests.cli.chat_commands import scripted_flags, stored_conversation, stored_sessions
from tests.cli.stored_chats import DATABASE
from tests.command_runner import CommandResult, Convo, Launch
from tests.loopback_server import LoopbackServer

OTHER_HOME = {"CONVO_HOME": "elsewhere"}


@pytest.fixture
def paused_flags(convo: Convo, home: Path) -> tuple[str, str]:
    """Pause a run at two refund calls, with state.json; returns the flags of its model."""
    model = two_refund_calls()
    got = convo("chat", *agent_flags(), *model, "--state", "state.json", "-n", "mine", "pay back")
    assert got.exit == 3, got.err
    return model


def tool_outputs(home: Path, name: str) -> list[str]:
    items, _ = stored_conversation(home, name)
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def check_refused(got: CommandResult, exit_code: int, message: str) -> None:
    assert (got.exit, got.out) == (exit_code, "")
    assert message in got.err
    assert got.err.startswith("convo: ")
    assert tool_runs() == []


# -- from a state file of convo ----------------------------------------------------------------------


def test_each_decision_is_reported_and_applied(paused_flags: tuple[str, str], convo: Convo, home: Path) -> None:
    got = convo("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "c1", "--reject", "c2=not today")
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert got.err.splitlines()[:4] == [
        "approved refund (c1)",
        "rejected refund (c2)",
        'desk calls refund {"order": "A1", "cents": 100}',
        "refund returned paid 100 cents back for A1",
    ]
    assert tool_outputs(home, "mine") == ["paid 100 cents back for A1", "not today"]
    assert len(stored_sessions(home)) == 1


def test_undecided_calls_stay_pending_in_a_new_state(paused_flags: tuple[str, str], convo: Convo, home: Path) -> None:
    got = convo("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "c2", "-o", "next.json", "--json")
    result = got.json()
    assert (got.exit, result["status"], result["state_file"]) == (3, "paused", str(Path("next.json").absolute()))
    assert [one["call_id"] for one in result["pending"]] == ["c1"]
    assert tool_runs() == ["refund A2 200"]
    resumed = convo("resume", "next.json", *agent_flags(), *paused_flags, "--approve", "c1")
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n")
    assert tool_runs() == ["refund A2 200", "refund A1 100"]
    assert tool_outputs(home, "mine") == ["paid 100 cents back for A1", "paid 200 cents back for A2"]


def test_without_a_decision_the_run_stays_paused_and_no_tool_runs(paused_flags: tuple[str, str], convo: Convo) -> None:
    got = convo("resume", "state.json", *agent_flags(), *paused_flags)
    assert (got.exit, got.out, tool_runs()) == (3, "", [])
    assert "to decide and resume: convo resume mine --agent bot.py:desk --approve all" in got.err


def test_always_applies_to_calls_of_later_rounds(convo: Convo, home: Path) -> None:
    second_refund = {"call": {"name": "refund", "call_id": "c2", "arguments": {"order": "A2", "cents": 1}}}
    model = scripted_flags(REFUND, second_refund, PAID_BACK)
    convo("chat", *agent_flags(), *model, "-n", "mine", "pay back")
    got = convo("resume", "mine", *agent_flags(), *model, "--approve", "refund", "--always")
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert tool_runs() == ["refund A1 500", "refund A2 1"]


def test_later_calls_that_need_approval_are_a_new_pause(convo: Convo, home: Path) -> None:
    second_refund = {"call": {"name": "refund", "call_id": "c2", "arguments": {"order": "A2", "cents": 1}}}
    model = scripted_flags(REFUND, second_refund, PAID_BACK)
    convo("chat", *agent_flags(), *model, "-n", "mine", "pay back")
    assert convo("resume", "mine", *agent_flags(), *model, "--approve", "c1").exit == 3
    assert convo("resume", "mine", *agent_flags(), *model, "--approve", "c2").exit == 0
    assert tool_runs() == ["refund A1 500", "refund A2 1"]


def test_edited_arguments_are_validated(
    paused_flags: tuple[str, str], convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("editor.py").write_text("import sys, os; open(sys.argv[1], 'w').write(os.environ['DRAFT'])")
    monkeypatch.setenv("EDITOR", f"{sys.executable} editor.py")
    monkeypatch.setenv("DRAFT", '{"order": "A1", "cents": "many"}')
    got = convo("resume", "mine", *agent_flags(), *paused_flags, "--edit", "c1")
    assert (got.exit, got.out, tool_runs()) == (2, "", [])
    monkeypatch.setenv("DRAFT", '{"order": "A1", "cents": 1}')
    assert convo("resume", "mine", *agent_flags(), *paused_flags, "--edit", "c1", "--reject", "c2").exit == 0
    assert tool_runs() == ["refund A1 1"]


def test_a_state_is_read_from_stdin(paused_flags: tuple[str, str], convo: Convo, home: Path) -> None:
    got = convo("resume", "-", *agent_flags(), *paused_flags, "--approve", "all", stdin=Path("state.json").read_text())
    assert (got.exit, got.out) == (0, "Paid back.\n")


def test_a_finished_run_is_not_resumed_again(paused_flags: tuple[str, str], convo: Convo, home: Path) -> None:
    convo("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "all")
    before = tool_runs()
    for handle in ("state.json", "mine", "@last", stored_runs(home)[0].id):
        got = convo("resume", handle, *agent_flags(), *paused_flags, "--approve", "all")
        assert (got.exit, got.out) == (1, "")
        assert "has already ended (done)\n  try: convo inspect mine" in got.err
    assert tool_runs() == before


def test_a_state_of_an_earlier_pause_is_refused(convo: Convo, home: Path) -> None:
    second_refund = {"call": {"name": "refund", "call_id": "c2", "arguments": {"order": "A2", "cents": 1}}}
    model = scripted_flags(REFUND, second_refund, PAID_BACK)
    convo("chat", *agent_flags(), *model, "--state", "old.json", "-n", "mine", "pay back")
    convo("resume", "mine", *agent_flags(), *model, "--approve", "c1")
    got = convo("resume", "old.json", *agent_flags(), *model, "--approve", "c1")
    assert got.exit == 1
    assert "has continued since this state was written\n  try: convo resume run_" in got.err
    assert tool_runs() == ["refund A1 500"]


def test_decisions_that_other_programs_wrote_in_the_file_are_applied(
    paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    decided = convo("resume", "state.json", "--decide-only", "-o", "decided.json", "--approve", "c1", "--reject", "c2")
    assert decided.exit == 0
    got = convo("resume", "decided.json", *agent_flags(), *paused_flags)
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert tool_runs() == ["refund A1 100"]


def test_sticky_decisions_in_the_file_apply_to_all_calls_of_the_tool(
    paused_flags: tuple[str, str], convo: Convo
) -> None:
    flags = ("--decide-only", "-o", "decided.json", "--approve", "all", "--always")
    assert convo("resume", "state.json", *flags).exit == 0
    got = convo("resume", "decided.json", *agent_flags(), *paused_flags)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]


def test_deciding_many_calls_takes_linear_time(convo: Convo, home: Path) -> None:
    step_counts = []
    for count in (1, 20, 40, 80):
        calls = [{**REFUND["call"], "type": "function_call", "call_id": f"c{n}"} for n in range(count)]
        calls = [{**one, "arguments": json.dumps(one["arguments"])} for one in calls]
        assert (
            convo("chat", *agent_flags(), *scripted_flags({"output": calls}), "--state", "many.json", "pay back").exit
            == 3
        )
        with CallCount() as counter:
            assert convo("resume", "many.json", "--decide-only", "-o", "x.json", "--approve", "all").exit == 0
        step_counts.append(counter.total)
    assert step_counts[3] - step_counts[2] < 3 * (step_counts[2] - step_counts[1]), step_counts


def test_aborting_ends_the_run_and_its_conversation_continues(
    paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    got = convo("resume", "mine", *agent_flags(), *paused_flags, "--abort")
    assert (got.exit, got.out, tool_runs()) == (0, "", [])
    assert stored_runs(home)[0].status == "stopped"
    assert convo("chat", "-c", *agent_flags(), *paused_flags, "never mind").exit == 0


# -- an unavailable model ----------------------------------------------------------------------------


def unreachable_model_flags(tmp_path: Path) -> tuple[str, ...]:
    """Write settings of a provider whose server is unreachable; returns the flags that select its model."""
    (tmp_path / "dead.toml").write_text('[providers.dead]\napi = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n')
    return "--config", str(tmp_path / "dead.toml"), "-m", "dead/some"


@pytest.mark.parametrize("handle", ["mine", "state.json"])
@pytest.mark.parametrize("model", ["local/smollm2-135m-instruct", "dead/some"])
def test_no_approved_tool_runs_before_the_model_is_available(
    model: str, handle: str, paused_flags: tuple[str, str], convo: Convo, home: Path, tmp_path: Path
) -> None:
    config = unreachable_model_flags(tmp_path)[:2]
    got = convo(*config, "resume", handle, *agent_flags(), "-m", model, "--approve", "all", "-o", "out.json")
    assert (got.exit, got.out) == (1, ""), got.err
    assert "no tool was run" in got.err
    assert tool_runs() == []
    assert [one["decision"] for one in convo("inspect", "./out.json", "--json").json()["decisions"]] == ["approve"] * 2
    resumed = convo("resume", "out.json", *agent_flags(), *paused_flags)
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err


def test_no_approved_tool_inside_an_agent_tool_runs_before_both_models_are_available(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    flags = nested_agent_flags(
        outer=scripted_flags(ASK_DESK, PAID_BACK), inner=scripted_flags(REFUND, {"text": "The desk has paid."})
    )
    convo("chat", *flags, "--state", "state.json", "-n", "mine", "pay back")
    config, file = unreachable_model_flags(tmp_path)[:2], Path("bot.py")
    text = file.read_text()
    for agent in ("boss", "desk"):
        lines = text.splitlines()
        index = next(
            n for n, line in enumerate(lines) if line.startswith(("boss =", "clerk =")) and f'"{agent}"' in line
        )
        lines[index] = lines[index].replace("model='", "model='dead/' + '")
        file.write_text("\n".join(lines))
        Path(f"other-{agent}").mkdir()
        Path(f"other-{agent}/bot.py").write_text("\n".join(lines))
        got = convo(*config, "resume", "mine", "--agent", f"other-{agent}/bot.py:boss", "--approve", "all")
        assert (got.exit, "no tool was run" in got.err, tool_runs()) == (1, True, []), got.err


def test_after_a_tool_ran_the_state_file_is_written_even_if_the_run_fails(
    convo: Convo, home: Path, launch: Launch
) -> None:
    """The second model call fails. With the state file, no store may run the tool again."""
    convo("chat", *agent_flags(), *scripted_flags(REFUND), "--state", "state.json", "-n", "mine", "pay back")
    Path("silent.json").write_text(
        json.dumps({"replies": [REFUND, {"error": {"message": "broken", "status": 500, "retry_after_s": 0}}]})
    )
    broken = "-m", f"scripted/{Path('silent.json').absolute()}"
    got = convo("resume", "state.json", *agent_flags(), *broken, "--approve", "all", "-o", "state.json")
    assert (got.exit, tool_runs()) == (1, ["refund A1 500"]), got.err
    state = convo("inspect", "./state.json", "--json").json()
    assert (state["pending"], state["decisions"]) == ([], [])
    for env in (OTHER_HOME, {}):
        resumed = launch("resume", "state.json", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), env=env)
        assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    assert tool_runs() == ["refund A1 500"]


@pytest.mark.parametrize(
    ("flags", "status"),
    [([], "done"), (["--max-turns", "1"], "failed")],
)
def test_the_state_file_of_a_finished_run_runs_no_tool_again(
    flags: list[str], status: str, paused_flags: tuple[str, str], convo: Convo, home: Path, launch: Launch
) -> None:
    got = convo("resume", "state.json", *agent_flags(), *paused_flags, *flags, "--approve", "all", "-o", "state.json")
    assert (stored_runs(home)[0].status, len(tool_runs())) == (status, 2), got.err
    resumed = launch(
        "resume", "state.json", *agent_flags(), *paused_flags, "--max-turns", "9", "--approve", "all", env=OTHER_HOME
    )
    assert ("has already ended" in resumed.err) == (status == "done"), resumed.err
    assert len(tool_runs()) == 2


@pytest.mark.parametrize(
    ("out", "exit_code", "message"), [("nowhere/out.json", 1, "is not a folder"), (".", 2, "is not a regular file")]
)
def test_an_unwritable_state_file_is_detected_before_a_tool_runs(
    out: str, exit_code: int, message: str, paused_flags: tuple[str, str], convo: Convo
) -> None:
    check_refused(
        convo("resume", "mine", *agent_flags(), *paused_flags, "--approve", "all", "-o", out), exit_code, message
    )


@pytest.mark.parametrize("handle", ["mine", "state.json"])
def test_max_turns_counts_the_model_calls_of_the_whole_run(handle: str, convo: Convo, home: Path) -> None:
    second_refund = {"call": {"name": "refund", "call_id": "c2", "arguments": {"order": "A2", "cents": 1}}}
    model = scripted_flags(REFUND, second_refund, PAID_BACK)
    convo("chat", *agent_flags(), *model, "--state", "state.json", "-n", "mine", "pay back")
    flags = (*agent_flags(), *model, "--approve", "all", "--always")
    got = convo("resume", handle, *flags, "--max-turns", "2")
    assert (got.exit, "Max turns (2) exceeded" in got.err) == (1, True), got.err
    assert tool_runs() == ["refund A1 500", "refund A2 1"]


# -- a pause inside an agent tool --------------------------------------------------------------------


@pytest.fixture
def nested_flags(convo: Convo, home: Path) -> tuple[str, str]:
    """Pause a run at a refund call inside an agent tool, with state.json; returns the flags of its agents."""
    flags = nested_agent_flags(
        outer=scripted_flags(ASK_DESK, PAID_BACK), inner=scripted_flags(REFUND, {"text": "The desk has paid."})
    )
    got = convo("chat", *flags, "--state", "state.json", "-n", "mine", "pay back")
    assert got.exit == 3, got.err
    return flags


@pytest.mark.parametrize("selector", ["c1", "refund", "all"])
@pytest.mark.parametrize("source", ["file", "pipe", "in place", "decided before"])
def test_a_pause_inside_an_agent_tool_resumes_from_its_state_file(
    selector: str, source: str, nested_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    text = Path("state.json").read_text()
    if source == "decided before":
        assert convo("resume", "state.json", "--decide-only", "-o", "decided.json", "--approve", selector).exit == 0
        got = convo("resume", "decided.json", *nested_flags)
    elif source == "pipe":
        got = convo("resume", "-", *nested_flags, "--approve", selector, stdin=text)
    else:
        out = ("-o", "state.json") if source == "in place" else ()
        got = convo("resume", "state.json", *nested_flags, "--approve", selector, *out)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert tool_runs() == ["refund A1 500"]
    assert tool_outputs(home, "mine") == ["The desk has paid."]


def test_a_state_of_an_earlier_pause_inside_an_agent_tool_is_refused(convo: Convo, home: Path) -> None:
    """Only the inner run has continued since then, and its next call has the same id as the previous one."""
    second_refund = {"call": {**REFUND["call"], "arguments": {"order": "A2", "cents": 1}}}
    flags = nested_agent_flags(outer=scripted_flags(ASK_DESK, PAID_BACK), inner=scripted_flags(REFUND, second_refund))
    convo("chat", *flags, "--state", "old.json", "-n", "mine", "pay back")
    assert convo("resume", "old.json", *flags, "--approve", "c1").exit == 3
    assert tool_runs() == ["refund A1 500"]
    got = convo("resume", "old.json", *flags, "--approve", "c1")
    assert (got.exit, "has continued since" in got.err) == (1, True)
    assert tool_runs() == ["refund A1 500"]


def test_a_rejection_inside_an_agent_tool_is_sent_to_the_inner_agent(
    nested_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    got = convo("resume", "state.json", *nested_flags, "--reject", "c1=not today")
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", [])


# -- earlier decisions --------------------------------------------------------------------------------


def decide(convo: Convo, method: str, *flags: str) -> CommandResult:
    """Decide calls of the paused run with `convo approvals` or `--decide-only`; no tool runs."""
    if method == "inbox":
        return convo("approvals", "approve" if flags[0] == "--approve" else "reject", *flags[1:])
    return convo("resume", "state.json", "--decide-only", "-o", "state.json", *flags)


@pytest.mark.parametrize("selector", ["all", "refund"])
@pytest.mark.parametrize("method", ["inbox", "decide only"])
@pytest.mark.parametrize("handle", ["mine", "state.json"])
def test_all_and_tool_names_do_not_change_an_earlier_rejection(
    handle: str, method: str, selector: str, paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    if method == "decide only" and handle == "mine":
        handle = "state.json"
    assert decide(convo, method, "--reject", "c1=not today").exit in (0, 3)
    if method == "inbox":
        got = decide(convo, method, "--approve", selector)
        assert got.err.splitlines()[0] == "approved refund (c2)"
        assert "refund (c1) remains rejected; to change it: --approve c1" in got.err
    got = convo("resume", handle, *agent_flags(), *paused_flags, "--approve", selector)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert "refund (c1) remains rejected; to change it: --approve c1" in got.err
    assert tool_runs() == ["refund A2 200"]
    assert tool_outputs(home, "mine")[0] == "not today"


@pytest.mark.parametrize("method", ["inbox", "decide only"])
@pytest.mark.parametrize("handle", ["mine", "state.json"])
def test_the_id_of_a_decided_call_changes_its_decision(
    handle: str, method: str, paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    if method == "decide only" and handle == "mine":
        handle = "state.json"
    assert decide(convo, method, "--reject", "c1").exit in (0, 3)
    assert "approved refund (c1), was rejected" in decide(convo, method, "--approve", "c1").err
    assert "rejected refund (c1), was approved" in decide(convo, method, "--reject", "c1").err
    got = convo("resume", handle, *agent_flags(), *paused_flags, "--approve", "c1", "--approve", "c2")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert got.err.splitlines()[:2] == ["approved refund (c1), was rejected", "approved refund (c2)"]
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]


def test_a_state_from_another_store_is_decided_by_the_same_rules(paused_flags: tuple[str, str], launch: Launch) -> None:
    for decision_flags in (["--reject", "c1"], ["--approve", "all"]):
        got = launch("resume", "state.json", "--decide-only", "-o", "state.json", *decision_flags)
        assert got.exit in (0, 3)
    flags = ("resume", "state.json", *agent_flags(), *paused_flags)
    got = launch(*flags, "--approve", "refund", "--reject", "c2=no", env=OTHER_HOME)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert "rejected refund (c2), was approved" in got.err
    assert "refund (c1) remains rejected" in got.err
    assert tool_runs() == []


def test_conflicting_decisions_of_the_file_and_the_store_are_refused(
    paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    assert convo("approvals", "approve", "c1", "c2").exit == 0
    assert convo("resume", "state.json", "--decide-only", "-o", "no.json", "--reject", "c1").exit == 3
    got = convo("resume", "no.json", *agent_flags(), *paused_flags)
    check_refused(got, 1, "c1 is rejected in no.json and approved in the store")
    assert "try: --approve c1 or --reject c1 to choose the decision" in got.err
    got = convo("resume", "no.json", *agent_flags(), *paused_flags, "--reject", "c1")
    assert (got.exit, tool_runs()) == (0, ["refund A2 200"]), got.err


def test_the_reason_of_a_sticky_rejection_is_sent_for_later_calls_too(convo: Convo, home: Path) -> None:
    second_refund = {"call": {"name": "refund", "call_id": "c2", "arguments": {"order": "A2", "cents": 1}}}
    for name, in_file in (("one", False), ("two", True)):
        model = scripted_flags(REFUND, second_refund, PAID_BACK)
        convo("chat", *agent_flags(), *model, "-n", name, "--state", "state.json", "pay back")
        decision_flags = ("--reject", "refund=ask Ann first", "--always")
        if in_file:
            assert convo("resume", "state.json", "--decide-only", "-o", "state.json", *decision_flags).exit == 0
            got = convo("resume", "state.json", *agent_flags(), *model)
        else:
            got = convo("resume", "state.json", *agent_flags(), *model, *decision_flags)
        assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
        assert tool_outputs(home, name) == ["ask Ann first", "ask Ann first"]


# -- on another machine ------------------------------------------------------------------------------


def test_a_state_resumes_in_a_store_that_does_not_know_its_run(paused_flags: tuple[str, str], launch: Launch) -> None:
    flags = (*agent_flags(), *paused_flags)
    first = launch("resume", "state.json", *flags, "--approve", "c2", env=OTHER_HOME)
    assert (first.exit, tool_runs()) == (3, ["refund A2 200"])
    again = launch("resume", "state.json", *flags, "--approve", "c1", env=OTHER_HOME)
    assert (again.exit, again.out) == (0, "Paid back.\n")
    assert tool_runs() == ["refund A2 200", "refund A1 100"]
    third = launch("resume", "state.json", *flags, "--approve", "c1", env=OTHER_HOME)
    assert (third.exit, third.out) == (1, "")
    assert "has already ended" in third.err
    assert len(tool_runs()) == 2


def test_unsupported_fields_of_a_state_are_kept_in_the_state_of_the_next_pause(
    paused_flags: tuple[str, str], launch: Launch
) -> None:
    document = json.loads(Path("state.json").read_text())
    del document["convo"]
    document["trace"] = {"object": "trace", "id": "trace_1", "workflow_name": "w", "group_id": None, "metadata": None}
    Path("foreign.json").write_text(json.dumps(document))
    got = launch(
        "resume", "foreign.json", *agent_flags(), *paused_flags, "--approve", "c1", "-o", "next.json", env=OTHER_HOME
    )
    assert got.exit == 3, got.err
    after = json.loads(Path("next.json").read_text())
    assert after["trace"] == document["trace"]
    assert [one["raw_item"]["call_id"] for one in after["current_step"]["data"]["interruptions"]] == ["c2"]
    assert list(Path("elsewhere/data/paused").glob("*.base.json"))


def test_a_state_that_another_process_is_resuming_is_refused(
    paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    document = json.loads(Path("state.json").read_text())

    async def acquire_lease(store: Store) -> None:
        await store.acquire_lease(f"state {item_hash(document)}", "other@elsewhere:1:1", 60)

    read_from_store(home, acquire_lease)
    got = convo("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "all")
    assert (got.exit, got.out, tool_runs()) == (1, "", [])
    assert "is open in another process" in got.err
    assert "try: wait until that process ends" in got.err


def test_of_two_concurrent_resumes_each_call_runs_once(paused_flags: tuple[str, str], launch: Launch) -> None:
    flags = ("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "all")
    with ThreadPoolExecutor() as pool:
        got = [one.result() for one in [pool.submit(launch, *flags, env=OTHER_HOME) for _ in range(2)]]
    assert sorted(one.exit for one in got) == [0, 1]
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]
    (second,) = [one.err for one in got if one.exit]
    assert "is open in another process" in second or "has already ended" in second


@pytest.mark.parametrize("owner", ["--conversation", "--chain"])
def test_a_server_owned_history_continues_at_its_server(
    owner: str, server: LoopbackServer, launch: Launch, convo: Convo, home: Path
) -> None:
    """Items of the server are not sent again; a store without the run reads them from the server."""
    server.replies(LOOK_UP, REFUND, PAID_BACK)
    got = convo("chat", owner, *agent_flags(), "--state", "state.json", "-n", "mine", "pay back")
    assert got.exit == 3, got.err
    state = convo("inspect", "./state.json", "--json").json()
    handle = state["conversation_id"] if owner == "--conversation" else state["previous_response_id"]
    assert handle
    resumed = launch("resume", "state.json", *agent_flags(), "--approve", "c1", env=OTHER_HOME)
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    assert tool_runs() == ["look_up A1", "refund A1 500"]
    last = server.bodies[-1]
    assert [item["type"] for item in last["input"]] == ["function_call_output"]
    assert handle in (last.get("conversation"), last.get("previous_response_id"))


# -- refused states and command lines ----------------------------------------------------------------

NO_TOOL = AGENTS.replace("tools=(refund, look_up, who)", "tools=(look_up,)")
OTHER_SCHEMA = AGENTS.replace("def refund(order: str, cents: int)", "def refund(order: str, cents: int, why: str)")


@pytest.mark.parametrize(
    ("name", "text", "argv", "exit_code", "message"),
    [
        ("triage", AGENTS, ["--approve", "c1"], 5, "no agent 'desk'"),
        ("desk", NO_TOOL, ["--approve", "c1"], 5, "no tool 'refund'"),
        ("desk", OTHER_SCHEMA, ["--approve", "c1"], 2, "whose schema has changed"),
        ("desk", AGENTS, ["--approve", "nobody"], 5, "no pending call 'nobody'\n  try: one of c1, c2"),
        ("desk", AGENTS, ["--approve", "cc1"], 5, "  try: one of c1, c2\n"),
        ("desk", AGENTS, ["--approve", "c1", "--reject", "c1"], 2, "c1 is given two different decisions"),
        ("desk", AGENTS, ["--rerun", "c1"], 2, "c1 was not started"),
        ("desk", AGENTS, ["--output", "c1"], 2, "does not contain the output of the call"),
    ],
)
@pytest.mark.parametrize("handle", ["mine", "state.json"])
def test_a_state_that_does_not_match_is_refused_and_nothing_changes(
    handle: str,
    name: str,
    text: str,
    argv: list[str],
    exit_code: int,
    message: str,
    paused_flags: tuple[str, str],
    convo: Convo,
    home: Path,
) -> None:
    before = stored_runs(home), Path("state.json").read_bytes(), stored_conversation(home, "mine")
    Path("other").mkdir()
    Path("other/bot.py").write_text(text)
    check_refused(convo("resume", handle, "--agent", f"other/bot.py:{name}", *paused_flags, *argv), exit_code, message)
    assert (stored_runs(home), Path("state.json").read_bytes(), stored_conversation(home, "mine")) == before


@pytest.mark.parametrize(
    ("name", "text", "argv", "exit_code", "message"),
    [
        ("triage", AGENTS, ["--approve", "c1"], 5, "no agent 'desk'"),
        ("desk", NO_TOOL, ["--approve", "c1"], 5, "no tool 'refund'"),
        ("desk", AGENTS, ["--approve", "nobody"], 5, "no pending call 'nobody'"),
    ],
)
def test_a_foreign_state_that_does_not_match_creates_no_session(
    name: str, text: str, argv: list[str], exit_code: int, message: str, paused_flags: tuple[str, str], launch: Launch
) -> None:
    Path("other").mkdir()
    Path("other/bot.py").write_text(text)
    got = launch("resume", "state.json", "--agent", f"other/bot.py:{name}", *paused_flags, *argv, env=OTHER_HOME)
    check_refused(got, exit_code, message)
    assert not Path("elsewhere").joinpath(DATABASE).exists() or stored_sessions(Path("elsewhere")) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere.json"], "no file 'nowhere.json'"),
        (["nowhere.json", *("--agent", "bot.py:desk")], "no file 'nowhere.json'"),
        (["nobody", "--approve", "all"], "no session 'nobody'"),
        (["nobody", *("--agent", "bot.py:desk")], "no session 'nobody'"),
        (["state.json", "--agent", "bot.py:desk", "-o", "-"], "--schema and --sign require --decide-only"),
        (
            ["state.json", "--agent", "bot.py:desk", "--decide-only", "-o", "x.json"],
            "--decide-only and --agent cannot be used together",
        ),
        (
            ["state.json", "--decide-only", "-o", "x.json", "--rerun", "c1"],
            "--rerun, --output and --abort cannot be used with --decide-only",
        ),
    ],
)
def test_an_invalid_command_line_is_refused(
    argv: list[str], message: str, paused_flags: tuple[str, str], convo: Convo
) -> None:
    got = convo("resume", *argv)
    assert (got.exit in (2, 5), got.out) == (True, "")
    assert message in got.err
