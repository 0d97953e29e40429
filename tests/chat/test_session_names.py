"""Session names, which never look like another kind of handle."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.chat.session_record import NAME_MAX_CHARS, find_free_session_name, make_session_name, validate_session_name
from convo.errors import InvalidUsage
from convo.history.items import user_message
from convo.history.records import Session, Strategy
from convo.history.tree import root_key
from convo.stores.base import Store, Transaction

ODD_TEXT = st.text(st.characters() | st.sampled_from("_@-./\\" + string.whitespace) | st.sampled_from("\ud83d\udcff"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What is a monad, and why?", "what-is-a-monad"),
        ("resp_1", "resp-1"),
        ("  \n", "message"),
        ("Grüße an alle", "grüße-an-alle"),
        ("a" * 30 + " " + "b" * 9 + " c", "a" * 30 + "-" + "b" * 9),
        ("a" * 39 + " b", "a" * 39),
        ("!!! ___ ???", "chat"),
    ],
)
def test_a_session_is_named_after_its_first_words(text: str, name: str) -> None:
    assert make_session_name(user_message(text)) == name


@given(ODD_TEXT)
def test_any_message_gives_a_valid_name(text: str) -> None:
    name = make_session_name(user_message(text))
    assert validate_session_name(name) == name
    assert len(name) <= NAME_MAX_CHARS


def test_a_message_with_only_an_image_has_a_name_too() -> None:
    assert make_session_name(user_message("", {"type": "input_image", "image_url": "data:"})) == "message"


@pytest.mark.parametrize("name", ["mine", "my chat", "2", "Ünïcode", "a.b", "resp", "last", "json", "a" * 200, "a@b"])
def test_an_unambiguous_name_is_accepted(name: str) -> None:
    assert validate_session_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the name is empty"),
        (" \t", "the name is empty"),
        (" a", "begins or ends with a space"),
        ("a\nb", "is not printable"),
        ("a\x1b[2J", "is not printable"),
        ("half \ud83d", "is not printable"),
        ("@last", "looks like an option, an id or a file"),
        ("-c", "looks like an option, an id or a file"),
        ("ses_1", "looks like an option, an id or a file"),
        ("resp_1", "looks like an option, an id or a file"),
        ("conv_1", "looks like an option, an id or a file"),
        ("try_1", "looks like an option, an id or a file"),
        ("talk.json", "looks like an option, an id or a file"),
        ("a/b", "looks like an option, an id or a file"),
        (".", "looks like an option, an id or a file"),
        ("..", "looks like an option, an id or a file"),
        ("*", "looks like an option, an id or a file"),
        ("a@2", "looks like an option, an id or a file"),
        ("a" * 201, "longer than 200 characters"),
    ],
)
def test_a_name_that_looks_like_another_handle_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidUsage, match=reason):
        validate_session_name(name)


async def test_a_name_that_is_taken_gets_the_next_free_number(store: Store) -> None:
    for number, name in enumerate(["chat", "chat-2", "chat-4", "other-7"]):
        head = root_key(store.tenant)
        session = Session(f"ses_{number}", name, Strategy.SESSION, "scripted/echo", head, head, 0.0, 0.0)
        await store.commit(Transaction(session=session, expected_session_head=None))

    assert await find_free_session_name(store, "new") == "new"
    assert await find_free_session_name(store, "chat") == "chat-3"
    assert await find_free_session_name(store, "chat-2") == "chat-3"
    assert await find_free_session_name(store, "other-7") == "other-2"
