"""The losses of a transfer: one line for each kind, with the numbers of the items."""

import pytest

from convo.strategies.conversion import LossEffect, TransferLoss
from convo.terminal.report_views import format_positions, render_losses
from convo.terminal.terminal import DisplayOptions


def make_loss(*positions: int) -> TransferLoss:
    return TransferLoss("reasoning", LossEffect.NOT_SENT, "it is bound to its provider", positions)


@pytest.mark.parametrize(
    ("positions", "text"),
    [
        ([3], "item 3"),
        ([3, 5], "items 3 and 5"),
        ([1, 2, 3, 4, 5, 9], "items 1, 2, 3, 4, 5 and 9"),
        ([1, 2, 3, 4, 5, 9, 10], "items 1, 2, 3, 4, 5, 9 and 1 more"),
        (range(1, 27), "items 1, 2, 3, 4, 5, 6 and 20 more"),
    ],
)
def test_at_most_six_item_numbers_are_listed(positions: list[int], text: str) -> None:
    assert format_positions(make_loss(*positions)) == text


def test_losses_and_notes_are_rows() -> None:
    assert render_losses([], [], DisplayOptions()).split() == ["losses", "none"]
    lines = render_losses([make_loss(1, 4)], ["one note"], DisplayOptions()).splitlines()
    assert [line.strip() for line in lines] == [
        "not sent  reasoning: it is bound to its provider (items 1 and 4)",
        "note      one note",
    ]
