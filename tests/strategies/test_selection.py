"""Flags and handles that do not fit together are refused, and the owner is named."""

import pytest

from convo.errors import InvalidUsage, WrongOwner
from convo.history.records import Strategy
from convo.strategies.selection import OwnerSelection, select_owner

CHAIN, CONVERSATION, REPLAY, SESSION = Strategy.CHAIN, Strategy.CONVERSATION, Strategy.REPLAY, Strategy.SESSION


@pytest.mark.parametrize(
    ("flags", "handle", "meant"),
    [
        ([], None, OwnerSelection(None)),
        ([CHAIN], None, OwnerSelection(CHAIN)),
        ([], "resp_1", OwnerSelection(CHAIN, "resp_1")),
        ([], "conv_1", OwnerSelection(CONVERSATION, "conv_1")),
        ([], "./x.json", OwnerSelection(REPLAY, "./x.json")),
        ([], "my-chat", OwnerSelection(None, "my-chat")),
        ([CHAIN], "my-chat", OwnerSelection(CHAIN, "my-chat")),
        ([REPLAY], "notes", OwnerSelection(REPLAY, "notes")),
        ([SESSION], "a.json", OwnerSelection(SESSION, "a.json")),
    ],
)
def test_a_handle_implies_its_strategy(flags: list[Strategy], handle: str | None, meant: OwnerSelection) -> None:
    assert select_owner(flags, handle) == meant


@pytest.mark.parametrize(
    ("flag", "handle", "belongs"),
    [
        (SESSION, "resp_1", "Responses API (--chain)"),
        (REPLAY, "resp_1", "Responses API (--chain)"),
        (CONVERSATION, "resp_1", "Responses API (--chain)"),
        (CHAIN, "conv_1", "Conversations API (--conversation)"),
        (SESSION, "conv_1", "Conversations API (--conversation)"),
        (CHAIN, "./x.json", "a JSON file (--replay)"),
        (CONVERSATION, "dir/x", "a JSON file (--replay)"),
    ],
)
def test_a_handle_of_another_strategy_is_refused_with_its_strategy(flag: Strategy, handle: str, belongs: str) -> None:
    with pytest.raises(WrongOwner, match=r"belongs to") as refused:
        select_owner([flag], handle)
    assert refused.value.message.endswith(belongs)
    assert refused.value.exit == 2


def test_two_strategies_are_refused_with_the_one_of_the_handle() -> None:
    with pytest.raises(WrongOwner) as refused:
        select_owner([SESSION, CHAIN], "conv_1")
    assert refused.value.message == (
        "--chain and --session cannot be used together: a conversation has one owner; "
        "'conv_1' belongs to the endpoint's Conversations API (--conversation)"
    )


def test_continue_and_from_exclude_each_other() -> None:
    with pytest.raises(InvalidUsage):
        select_owner([], "x", use_last_session=True)
