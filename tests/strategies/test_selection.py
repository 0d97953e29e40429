"""Options and handles that contradict each other are refused with the name of the owner."""

import pytest

from convo.errors import InvalidUsage, WrongOwner
from convo.history.records import Strategy
from convo.strategies.selection import (
    OwnerSelection,
    check_handle,
    is_file_handle,
    is_session_handle,
    owner_of_handle,
    parse_turn_handle,
    select_owner,
)

CHAIN, CONVERSATION, REPLAY, SESSION = Strategy.CHAIN, Strategy.CONVERSATION, Strategy.REPLAY, Strategy.SESSION


@pytest.mark.parametrize(
    ("flags", "handle", "expected"),
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
        ([CHAIN], "resp_1", OwnerSelection(CHAIN, "resp_1")),
        ([REPLAY], "a.json", OwnerSelection(REPLAY, "a.json")),
    ],
)
def test_a_handle_implies_its_strategy(flags: list[Strategy], handle: str | None, expected: OwnerSelection) -> None:
    assert select_owner(flags, handle) == expected


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
    with pytest.raises(WrongOwner, match=r"belongs to") as error:
        select_owner([flag], handle)
    assert error.value.message.endswith(belongs)
    assert error.value.exit == 2


def test_two_strategies_are_refused_with_the_one_of_the_handle() -> None:
    with pytest.raises(WrongOwner) as error:
        select_owner([SESSION, CHAIN], "conv_1")
    assert error.value.message == (
        "--chain and --session cannot be used together: a conversation has one owner; "
        "'conv_1' belongs to the endpoint's Conversations API (--conversation)"
    )


def test_two_owners_without_a_handle_are_refused() -> None:
    with pytest.raises(WrongOwner) as error:
        select_owner([REPLAY, CHAIN], None)
    assert error.value.message == "--chain and --replay cannot be used together: a conversation has one owner"
    assert error.value.hint == "use one of them"


@pytest.mark.parametrize(
    ("flag", "handle", "message", "hint"),
    [
        (
            SESSION,
            "conv_1",
            "--session expects a session's name or id; 'conv_1' belongs to the endpoint's Conversations API "
            "(--conversation)",
            "--conversation --from HANDLE",
        ),
        (
            CHAIN,
            "a.json",
            "--chain expects resp_...; 'a.json' belongs to the application: a JSON file (--replay)",
            "--replay --from HANDLE",
        ),
        (
            REPLAY,
            "resp_1",
            "--replay expects a file; 'resp_1' belongs to the endpoint's Responses API (--chain)",
            "--chain --from HANDLE",
        ),
        (
            CONVERSATION,
            "resp_1",
            "--conversation expects conv_...; 'resp_1' belongs to the endpoint's Responses API (--chain)",
            "--chain --from HANDLE",
        ),
    ],
)
def test_the_error_names_the_expected_handle_and_the_flag_of_the_owner(
    flag: Strategy, handle: str, message: str, hint: str
) -> None:
    with pytest.raises(WrongOwner) as error:
        select_owner([flag], handle)
    assert (error.value.message, error.value.hint) == (message, hint)


def test_the_session_used_last_is_continued_without_a_handle() -> None:
    assert select_owner([CHAIN], None, use_last_session=True) == OwnerSelection(CHAIN, None, True)


def test_continue_and_from_exclude_each_other() -> None:
    with pytest.raises(InvalidUsage) as error:
        select_owner([], "x", use_last_session=True)
    assert error.value.message == "-c and --from cannot be used together: -c continues the session used last"
    assert error.value.hint == "use one of them"


@pytest.mark.parametrize(
    ("selection", "file"),
    [
        (OwnerSelection(REPLAY, "a.json"), "a.json"),
        (OwnerSelection(REPLAY), None),
        (OwnerSelection(SESSION, "a.json"), None),
        (OwnerSelection(None, "a.json"), None),
    ],
)
def test_only_a_replay_has_a_file(selection: OwnerSelection, file: str | None) -> None:
    assert selection.replay_file == file


@pytest.mark.parametrize(
    ("handle", "owner"),
    [
        ("resp_1", CHAIN),
        ("conv_1", CONVERSATION),
        ("a.json", REPLAY),
        ("dir/chat", REPLAY),
        ("C:\\chat", REPLAY),
        ("a.json.bak", SESSION),
        ("my-resp_1", SESSION),
        ("", SESSION),
    ],
)
def test_the_form_of_a_handle_shows_its_owner(handle: str, owner: Strategy) -> None:
    assert owner_of_handle(handle) is owner
    assert (is_file_handle(handle), is_session_handle(handle)) == (owner is REPLAY, owner is SESSION)


@pytest.mark.parametrize(
    ("handle", "parsed"),
    [
        ("chat@2", ("chat", 2)),
        ("chat@-1", ("chat", -1)),
        ("resp_1@123456789", ("resp_1", 123456789)),
        ("a@b@3", ("a@b", 3)),
        ("chat@1234567890", ("chat@1234567890", None)),
        ("chat@\u0663", ("chat@\u0663", None)),
        ("@2", ("@2", None)),
        ("chat@", ("chat@", None)),
        ("chat", ("chat", None)),
    ],
)
def test_a_turn_number_follows_the_last_at_sign(handle: str, parsed: tuple[str, int | None]) -> None:
    assert parse_turn_handle(handle) == parsed


@pytest.mark.parametrize("handle", ["resp_1", "conv_a.b:c=d+e~f@g$h-i", "any name / of a file.json", "a session"])
def test_a_well_formed_handle_passes(handle: str) -> None:
    check_handle(handle)


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        ("conv_1/../../admin", "'conv_1/../../admin' is not the id of a conversation"),
        ("resp_\n", r"'resp_\n' is not the id of a response"),
        ("resp_" + " " * 59, f"'resp_{' ' * 59}' is not the id of a response"),
        ("resp_" + " " * 60, f"'resp_{' ' * 59}...' is not the id of a response"),
    ],
)
def test_a_malformed_id_is_refused(handle: str, message: str) -> None:
    """The message contains at most 64 characters of the id."""
    for refuse in (check_handle, lambda handle: select_owner([], handle)):
        with pytest.raises(InvalidUsage) as error:
            refuse(handle)
        assert (error.value.message, error.value.hint) == (message, "convo sessions lists the conversations")
