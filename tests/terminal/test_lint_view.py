"""The screen of lint findings."""

from convo.terminal.report_views import (
    CheckReport,
    make_error_result,
    make_ok_result,
    make_warning_result,
    render_checks,
    summarize_checks,
)
from convo.terminal.terminal import DisplayOptions

REPORTS = [
    CheckReport("store", make_error_result("it is away", "start it")),
    CheckReport("disk", make_warning_result("it is nearly full", "free some space")),
    CheckReport("keys", make_ok_result("one is set")),
]


def test_a_finding_shows_its_fix_below_it() -> None:
    assert render_checks(REPORTS, DisplayOptions()).splitlines() == [
        "  store  error: it is away",
        "         try: start it",
        "  disk   warning: it is nearly full",
        "         try: free some space",
        "  keys   one is set",
    ]


def test_an_error_is_highlighted_in_colour() -> None:
    output = render_checks(REPORTS, DisplayOptions(80, has_color=True))

    assert "\x1b[31m✗\x1b[0m \x1b[31mstore\x1b[0m  error: it is away" in output
    assert "\x1b[33m!\x1b[0m \x1b[33mdisk \x1b[0m  warning: " in output
    assert "\x1b[32m✓\x1b[0m \x1b[32mkeys \x1b[0m  one is set" in output
    assert "✗ store  error: it is away" in render_checks(REPORTS, DisplayOptions(80))


def test_control_characters_in_findings_are_escaped() -> None:
    assert render_checks(
        [CheckReport("store", make_error_result("it says \x1b[2J", "do"))], DisplayOptions()
    ).splitlines()[0] == ("  store  error: it says \\x1b[2J")


def test_the_summary_counts_findings() -> None:
    assert summarize_checks(REPORTS) == "1 error and 1 warning"
    assert summarize_checks(REPORTS[:1] * 2) == "2 errors"
    assert summarize_checks(REPORTS[2:]) == "all checks passed"
    assert summarize_checks(REPORTS, with_names=True) == "1 error: store; 1 warning: disk"


def test_a_terminal_shows_passed_checks_in_one_line_without_their_hints() -> None:
    passed = CheckReport("seal", make_ok_result("encrypted with a key " * 5, "back it up"))
    assert render_checks([*REPORTS[1:], passed], DisplayOptions(40)).splitlines() == [
        "! disk  warning: it is nearly full",
        "        try: free some space",
        "✓ keys  one is set",
        "✓ seal  encrypted with a key encrypted…",
    ]
    alone = render_checks([passed], DisplayOptions(40)).splitlines()
    assert len(alone) == 5
    assert alone[-1] == "        try: back it up"


def test_a_passed_check_is_cut_after_a_clause_and_not_in_a_word() -> None:
    model = CheckReport(
        "model", make_ok_result("openai/gpt-5-mini (OPENAI_API_KEY is set); its provider stores chains")
    )
    local = CheckReport("local", make_ok_result("/models/tiny.gguf; needs no key", brief="installed"))
    extras = CheckReport("extra", make_ok_result("anthropic, keyring, mcp, postgres, serve, tokens"))

    def values(columns: int) -> list[str]:
        lines = render_checks([model, local, extras], DisplayOptions(columns)).splitlines()
        return [line[len("✓ model  ") :] for line in lines]

    assert values(80) == [model.result.message, local.result.message, extras.result.message]
    assert values(60) == [
        "openai/gpt-5-mini (OPENAI_API_KEY is set)",
        "/models/tiny.gguf; needs no key",
        "anthropic, keyring, mcp, postgres, serve, tokens",
    ]
    assert values(36) == ["openai/gpt-5-mini", "installed", "anthropic, keyring, mcp, …"]
