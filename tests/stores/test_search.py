"""Search for handles by prefix and for items by words, on every store."""

from dataclasses import replace

import pytest

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Session
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, HandleMatch, SearchResult, Store, Transaction
from tests.stores.chat_transactions import NOW, link, search_hits, session

ROOT = root_key("local")
EMPTY = Path(ROOT)
OPERATORS = [
    '"',
    "'",
    '"a',
    "a*",
    "*",
    "NEAR(",
    "a AND",
    "OR",
    "NOT",
    "-a",
    "terms:a",
    "{terms}:a",
    "^a",
    "(",
    ")",
    "+",
    "\\",
]
BLANK_QUERIES = ["", " ", "\0", "...", "\ud83d", "—", "\n", "\u200d"]


async def store_session(store: Store, name: str, *items: Item, used_at: float = NOW) -> Session:
    path = EMPTY.append(items)
    record = session(id=f"ses_{name}", name=name, head=path.head, used_at=used_at)
    await store.commit(Transaction((AppendItems(ROOT, items),), session=record))
    return record


async def found_texts(store: Store, query: str) -> list[tuple[str, str]]:
    """Return the owner and the text of each hit."""
    return [(hit.owner, hit.item["content"][0]["text"]) for hit in await search_hits(store, query)]


# -- handles --------------------------------------------------------------------------------------


async def test_a_prefix_finds_sessions_responses_and_conversations(store: Store) -> None:
    await store_session(store, "resp-ect", user_message("hi"))
    input_path = EMPTY.append([user_message("What is\n  a tree?")])
    output_path = input_path.append([assistant_message("A graph")])
    await store.commit(
        Transaction(
            (AppendItems(ROOT, output_path.items),),
            (
                link("resp_1", input_path.head, output_path.head, created_at=NOW),
                link("resp_2", ROOT, created_at=NOW + 1),
            ),
            conversation=Conversation("resp_conv", output_path.head, NOW, ("a", "b")),
        )
    )

    assert await store.find_handles("resp") == [
        HandleMatch("session", "ses_resp-ect", "resp-ect"),
        HandleMatch("response", "resp_2", ""),
        HandleMatch("response", "resp_1", "What is a tree?"),
        HandleMatch("conversation", "resp_conv", "A graph"),
    ]
    assert [one.id for one in await store.find_handles("resp", limit=2)] == ["ses_resp-ect", "resp_2"]


async def test_twenty_handles_and_hits_are_returned_unless_a_limit_is_given(store: Store) -> None:
    path = EMPTY.append([user_message(f"apple {number}") for number in range(21)])
    links = tuple(link(f"resp_{number}", ROOT) for number in range(21))
    await store.commit(Transaction((AppendItems(ROOT, path.items),), links, session(head=path.head)))

    assert len(await store.find_handles("resp_")) == len(await search_hits(store, "apple")) == 20
    assert len(await store.find_handles("resp_", limit=21)) == len(await search_hits(store, "apple", limit=21)) == 21


async def test_a_session_is_found_by_its_name_and_its_id_and_listed_once(store: Store) -> None:
    await store_session(store, "ses_mine", user_message("hi"), used_at=NOW)
    await store_session(store, "other", user_message("hi"), used_at=NOW + 1)

    assert [one.label for one in await store.find_handles("oth")] == ["other"]
    assert [one.label for one in await store.find_handles("ses_")] == ["other", "ses_mine"]


async def test_sessions_are_listed_by_last_use_independent_of_the_clock(store: Store) -> None:
    first = await store_session(store, "first", user_message("hi"), used_at=NOW)
    await store_session(store, "ahead", user_message("hi"), used_at=NOW + 1_000_000)
    await store_session(store, "back", user_message("hi"), used_at=NOW - 1_000_000)
    assert [one.name for one in await store.sessions()] == ["back", "ahead", "first"]

    await store.commit(Transaction(session=replace(first, used_at=NOW - 2_000_000), expected_session_head=first.head))
    assert [one.name for one in await store.sessions(limit=2)] == ["first", "back"]


async def test_a_rolled_back_use_keeps_the_order_of_sessions(store: Store) -> None:
    first = await store_session(store, "first", user_message("hi"))
    await store_session(store, "second", user_message("hi"))
    before = await store.session(first.id)
    assert before is not None
    await store.commit(
        Transaction(session=replace(before, used_at=NOW + 5, use_order=None), expected_session_head=first.head)
    )
    assert [one.name for one in await store.sessions()] == ["first", "second"]

    await store.commit(Transaction(session=before, expected_session_head=first.head))
    assert [one.name for one in await store.sessions()] == ["second", "first"]


async def test_a_used_session_comes_before_others_with_the_same_number(store: Store) -> None:
    for number, name in enumerate(("one", "two")):
        await store.commit(Transaction(session=session(id=f"ses_{number}", name=name, use_order=5)))
    await store.commit(Transaction(session=session(id="ses_0", name="one", used_at=NOW + 1)))

    assert [(one.name, one.use_order) for one in await store.sessions()] == [("one", 6), ("two", 5)]
    await store.commit(Transaction(session=session(id="ses_0", name="one", used_at=NOW + 2)))
    assert [(one.name, one.use_order) for one in await store.sessions()] == [("one", 6), ("two", 5)]


async def test_a_renamed_session_keeps_its_position(store: Store) -> None:
    first = await store_session(store, "first", user_message("hi"))
    await store_session(store, "second", user_message("hi"))
    await store.commit(Transaction(session=replace(first, name="renamed"), expected_session_head=first.head))
    assert [one.name for one in await store.sessions()] == ["second", "renamed"]


async def test_a_prefix_is_literal(store: Store) -> None:
    await store_session(store, "one", user_message("hi"))

    for prefix in ("%", "_", "*", "ses%", "s_s", "[s]es", "SES", "\ud800"):
        assert await store.find_handles(prefix) == [], prefix


@pytest.mark.parametrize("name", ["größe", "日本", "🎉 party", "a\0b", "x%y"])
async def test_any_text_can_be_a_name(store: Store, name: str) -> None:
    record = await store_session(store, name, user_message("hi"))

    assert await store.session(name) == record
    assert [one.label for one in await store.find_handles(name[:2])] == [name]


async def test_an_id_takes_precedence_over_a_name(store: Store) -> None:
    one = await store_session(store, "one", user_message("hi"))
    await store.commit(Transaction(session=replace(session(head=one.head), id="ses_2", name="ses_one")))

    assert await store.session("ses_one") == one


# -- items ----------------------------------------------------------------------------------------


async def test_a_search_finds_the_items_that_contain_every_word(store: Store) -> None:
    path = EMPTY.append([user_message("apples and pears"), assistant_message("pears"), user_message("apples")])
    await store_session(store, "one", *path.items)

    assert await search_hits(store, "pears apples") == [("one", path.nodes[0].key, path.nodes[0].item)]


FOUND = {
    "Café au lait": "cafe",
    "ÜBER Größe": "über grösse",
    "東京都に行く": "京都",
    "가나다라": "가나다라",
    "ガギグ": "ギ",
    "party 🎉 time": "🎉",
    "see foo_bar(1)": "foo_bar",
    "see qux_bar.baz(1)": '"bar.baz"',
    "don't": "don't",
    "C++ or C#": "C++",
    "naïve\u0301": "naive",
    "x" * 100: "x" * 100,
    "y" * 64 + "z": "y" * 64 + "a",
    "हिन्दी भाषा": "हिन्दी",
    "tea": "TEÁ",
}
"""A query for each text, which finds no other."""


async def test_words_are_found_in_any_case_and_with_or_without_accents(store: Store) -> None:
    await store_session(store, "one", *map(user_message, FOUND))

    for text, query in FOUND.items():
        assert await found_texts(store, query) == [("one", text)], query


async def test_other_words_do_not_match(store: Store) -> None:
    texts = ("foo then bar", "ガ", "apples", "OR", "京 東", "x" * 63 + "y")
    await store_session(store, "one", *map(user_message, texts))

    for query in ("foo-bar", "カ", "apple", "NOT", "東京", "x" * 63 + "z"):
        assert await store.search_items(query) == SearchResult([]), query


async def test_calls_are_found_by_their_names_and_arguments(store: Store) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": '{"city": "Paris"}'}
    await store_session(store, "one", call)

    assert [hit.item for hit in await search_hits(store, "paris look_up")] == [call]


async def test_an_item_is_one_hit_for_each_session(store: Store) -> None:
    path = EMPTY.append([user_message("echo"), assistant_message("what"), user_message("echo")])
    await store_session(store, "one", *path.items, used_at=NOW)
    await store_session(store, "two", user_message("other"), user_message("echo"), used_at=NOW + 1)

    hits = await search_hits(store, "echo")

    assert [hit.owner for hit in hits] == ["two", "one"]
    assert hits[1].key == path.nodes[0].key


async def test_a_search_in_a_session_includes_the_inputs_of_its_links(store: Store) -> None:
    """The input of an edited or compacted history is still found, and that of a response of another client."""
    old, foreign = EMPTY.append([user_message("old words")]), EMPTY.append([user_message("foreign words")])
    record = await store_session(store, "one", user_message("new"))
    await store.commit(
        Transaction(
            (AppendItems(ROOT, old.items), AppendItems(ROOT, foreign.items)),
            (link("resp_1", old.head, session_id=record.id), link("resp_2", foreign.head)),
        )
    )

    assert await found_texts(store, "words") == [("one", "old words"), ("resp_2", "foreign words")]


async def test_the_item_with_more_matches_comes_first(store: Store) -> None:
    await store_session(
        store,
        "one",
        user_message("tree " + "and so on " * 40),
        user_message("tree tree tree"),
        user_message("tree and so on"),
    )

    assert (await found_texts(store, "tree"))[0][1] == "tree tree tree"
