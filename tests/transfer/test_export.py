"""Each file format of an exported conversation."""

import json
from collections.abc import Sequence

import pytest

from convo.history.items import Item, assistant_message, item_text, user_message
from convo.history.records import COMPACTION_CONTEXT_MANAGEMENT
from convo.history.tree import Path, root_key
from convo.inspect.serialize import ConversationDocument, TranscriptEntry
from convo.stores.base import AppendItems, Store, Transaction
from convo.transfer.export import load_transcript, render_jsonl, render_markdown_export, render_replay
from tests.stores.chat_transactions import link

ITEMS: tuple[Item, ...] = (
    user_message("Weather?"),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Oslo,\nthen."}]},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "```\nrain\n```"},
    user_message("And this?", {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
    assistant_message("A *cat*."),
)
LINK = {"id": "resp_1", "saw": 1, "head": 3}
DOCUMENT = ConversationDocument(
    items=ITEMS, confirmed_count=6, name="weather", model="openai/gpt-5-mini", links=(LINK,)
)


def test_a_replay_file_is_a_json_list_with_one_item_per_line() -> None:
    text = render_replay(DOCUMENT)
    assert json.loads(text) == list(ITEMS)
    assert len(text.splitlines()) == len(ITEMS) + 2


def test_jsonl_has_the_items_only() -> None:
    assert [json.loads(line) for line in render_jsonl(DOCUMENT).splitlines()] == list(ITEMS)


def test_a_link_follows_the_last_item_that_it_added() -> None:
    lines = [json.loads(line) for line in render_jsonl(DOCUMENT, include_links=True).splitlines()]
    assert [line["object"].removeprefix("convo.") for line in lines] == [
        *("conversation", "item", "item", "item", "link", "item", "item", "item")
    ]
    assert (lines[0]["name"], lines[0]["acknowledged"], lines[4]["id"]) == ("weather", 6, "resp_1")


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, "*encrypted reasoning*"),
        ({"type": "reasoning", "summary": []}, "*reasoning without text*"),
    ],
)
def test_encrypted_reasoning_is_distinguished_from_empty_reasoning(item: Item, expected: str) -> None:
    assert f"## 1. reasoning\n\n{expected}\n" in render_markdown_export(
        ConversationDocument((item,), confirmed_count=1)
    )


MARKDOWN = """# weather

Model: `openai/gpt-5-mini`

## 1. user

Weather?

## 2. reasoning

> Oslo,
> then.

## 3. call of weather

```
{"city": "Oslo"}
```

## 4. output of call_1

````
```
rain
```
````

## 5. user

And this?

*an image: `image/png`*

## 6. assistant

A *cat*.

<!-- convo: without its data -->
"""


def test_markdown_is_readable() -> None:
    assert render_markdown_export(DOCUMENT, include_data=False) == MARKDOWN


def test_markdown_ends_with_the_document_in_one_comment() -> None:
    evil = ConversationDocument(items=(user_message("--> <!-- convo.conversation {} -->\n-- ---"),), confirmed_count=1)
    last = render_markdown_export(evil).splitlines()[-1]
    inner = last.removeprefix("<!-- convo.conversation ").removesuffix(" -->")
    assert not {"--", "<", ">"} & {inner[index : index + size] for index in range(len(inner)) for size in (1, 2)}
    assert json.loads(inner)["items"] == list(evil.items)


@pytest.mark.parametrize(
    ("output", "fence"), [("`", "```"), ("``", "```"), ("```", "````"), ("a ``` b ````` c", "``````")]
)
def test_a_fence_is_longer_than_every_run_of_backticks_in_it(output: str, fence: str) -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": output}
    text = render_markdown_export(ConversationDocument((item,), confirmed_count=1), include_data=False)

    assert f"\n\n{fence}\n{output}\n{fence}\n\n" in text


def test_the_title_and_the_header_are_one_line_each_and_instructions_are_fenced() -> None:
    document = ConversationDocument(
        (
            user_message("> quoted\n\nno"),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a\n\nb"}]},
        ),
        confirmed_count=2,
        name="two\n\twords",
        model="a`b`c",
        instructions="Be `brief`.",
    )

    text = render_markdown_export(document, include_data=False)

    assert text.startswith("# two words\n\nModel: `abc`\n\nInstructions:\n\n```\nBe `brief`.\n```\n\n## 1. user\n\n")
    assert "\n\n> a\n>\n> b\n\n" in text
    assert render_markdown_export(ConversationDocument((), confirmed_count=0), include_data=False) == (
        "# A conversation\n\n<!-- convo: without its data -->\n"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:image/gif;base64,AAAA", "*an image: `image/gif`*"),
        ("https://a.example/b", "*an image: `https://a.example/b`*"),
    ],
)
def test_an_image_is_named_by_its_type_or_its_url(url: str, expected: str) -> None:
    item = user_message("", {"type": "input_image", "image_url": url})
    assert expected in render_markdown_export(ConversationDocument((item,), confirmed_count=1), include_data=False)


async def store_compactions(store: Store, count: int, first_parent_id: str | None = None) -> Path:
    """Store the links "cmp_1" to "cmp_{count}", each a compaction followed by a message; return the last path."""
    path, changes, links = Path(root_key("local")), [], []
    for number in range(1, count + 1):
        compaction: Item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": str(number)}
        path = Path(path.root).append([compaction, user_message(f"Question {number}?")])
        changes.append(AppendItems(path.root, path.items))
        parent_id = f"cmp_{number - 1}" if number > 1 else first_parent_id
        parameters = {"context_management": COMPACTION_CONTEXT_MANAGEMENT}
        links.append(link(f"cmp_{number}", path.root, path.head, parent_id=parent_id, parameters=parameters))
    await store.commit(Transaction(tuple(changes), tuple(links)))
    return path


async def test_the_text_of_a_conversation_has_the_items_before_more_compactions_than_python_has_frames(
    store: Store,
) -> None:
    path = await store_compactions(store, 1200)
    entries = await load_transcript(store, path, "cmp_1200")
    assert len(entries) == 2 * 1200
    assert entries[-2].replaced_numbers == (2 * 1200 - 3, 2 * 1200 - 2)


async def test_compactions_that_name_each_other_as_parent_are_read_once(store: Store) -> None:
    path = await store_compactions(store, 3, first_parent_id="cmp_3")
    entries = await load_transcript(store, path, "cmp_3")
    assert [item_text(entry.item) for entry in entries][-5::2] == ["Question 1?", "Question 2?", "Question 3?"]


@pytest.mark.parametrize(
    ("numbers", "title"),
    [
        (range(2, 21, 2), "compaction of items 2, 4, 6, 8, 10, 12, 14, 16, 18, 20"),
        (range(2, 1001, 2), "compaction of items 2, 4, 6, 8, 10, 12, 14, 16, 18, … 1000"),
        ([*range(1, 500), *range(501, 2001)], "compaction of items 1-499, 501-2000"),
    ],
)
def test_the_title_of_a_compaction_names_few_of_many_replaced_items(numbers: Sequence[int], title: str) -> None:
    compaction: Item = {"type": "compaction", "encrypted_content": "x"}
    entries = (TranscriptEntry(user_message("hi")), TranscriptEntry(compaction, tuple(numbers)))
    document = ConversationDocument((compaction,), confirmed_count=1, transcript=entries)
    assert f"\n## 2. {title}\n" in render_markdown_export(document)
