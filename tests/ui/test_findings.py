"""Findings on a screen."""

from convo.ui.findings import Report, fault, ok, screen, summary, warning
from convo.ui.medium import Medium

REPORTS = [
    Report("store", fault("it is away", "start it")),
    Report("disk", warning("it is nearly full", "free some space")),
    Report("keys", ok("one is set")),
]


def test_what_is_not_ok_says_so_and_has_its_next_step_below_it() -> None:
    assert screen(REPORTS, Medium()).splitlines() == [
        "  store  fault: it is away",
        "         try: start it",
        "  disk   warning: it is nearly full",
        "         try: free some space",
        "  keys   one is set",
    ]


def test_in_colour_a_fault_stands_out() -> None:
    shown = screen(REPORTS, Medium(80, colour=True))

    assert "\x1b[31mstore\x1b[0m  fault: it is away" in shown
    assert "\x1b[1mdisk \x1b[0m  warning: " in shown
    assert "\x1b[2mkeys \x1b[0m  one is set" in shown


def test_control_characters_in_what_was_found_are_spelled_out() -> None:
    assert screen([Report("store", fault("it says \x1b[2J", "do"))], Medium()).splitlines()[0] == (
        "  store  fault: it says \\x1b[2J"
    )


def test_the_summary_counts() -> None:
    assert summary(REPORTS) == "1 fault and 1 warning"
    assert summary(REPORTS[:1] * 2) == "2 faults"
    assert summary(REPORTS[2:]) == "nothing is wrong"
