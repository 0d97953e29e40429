"""Automatic compaction of a chat: its threshold, its retries and its messages."""

from dataclasses import replace
from typing import Any, cast

import pytest

from convo.chat.conversation import Chat
from convo.config.sections import ContextLimits
from convo.endpoints.base import Endpoint
from convo.history.records import EMBEDDED_SCOPE, Scope, Strategy
from convo.transfer.auto_compaction import AutoCompaction, CompactionDue
from tests.transfer.compaction_cases import CompactionCase, first_words


def with_usage(chat: Chat, input_tokens: int, output_tokens: int = 0) -> Chat:
    """Set the usage of the last response of `chat` and return `chat`."""
    link = chat.record.last_link
    assert link
    chat.record.last_link = replace(link, usage={"input_tokens": input_tokens, "output_tokens": output_tokens})
    return chat


@pytest.mark.parametrize(
    ("due", "text"),
    [
        (CompactionDue(8_000, 8_000, 10_000), "the history has 8,000 tokens, 80 % of the context window"),
        (CompactionDue(8_060, 8_000, 10_000), "the history has 8,060 tokens, 81 % of the context window"),
        (CompactionDue(900, 800, None), "the history has 900 tokens"),
    ],
)
def test_the_reason_names_the_tokens_and_the_part_of_the_window(due: CompactionDue, text: str) -> None:
    assert str(due) == text


async def test_a_compaction_is_due_from_the_threshold_on(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION, turns=1)
    windows = {case.model: ContextLimits(1000)}

    assert AutoCompaction(0.8, windows).check_due(with_usage(chat, 700, 99)) is None
    assert AutoCompaction(0.8, windows).check_due(with_usage(chat, 700, 100)) == CompactionDue(800, 800, 1000)
    assert AutoCompaction(800).check_due(chat) == CompactionDue(800, 800, None)
    assert AutoCompaction(0.8).check_due(chat) is None
    assert AutoCompaction(0).check_due(chat) is None


async def test_a_new_chat_and_one_that_was_just_compacted_are_not_due(case: CompactionCase) -> None:
    assert AutoCompaction(2).check_due(await case.open(Strategy.SESSION)) is None

    chat = with_usage(await case.start_chat(Strategy.SESSION), 100)
    compaction, notices = AutoCompaction(2), list[str]()
    due = compaction.check_due(chat)
    assert due
    result = await compaction.compact_chat(chat, due, notices.append)

    assert result
    assert result.old_handle == "talk-before"
    assert first_words(chat.state.path.items)[-1] == "Summary"
    assert notices == ["the history has 100 tokens: compacting it first; Ctrl-C cancels"]
    assert AutoCompaction(2).check_due(chat) is None


async def test_after_a_failure_it_is_due_again_when_the_history_has_grown_by_a_tenth(case: CompactionCase) -> None:
    await case.start_chat(Strategy.SESSION, turns=1)
    silent = CompactionCase(case.store, case.folder)
    silent.script.write_text('{"replies": [{"text": ""}]}')
    chat = await silent.open()
    compaction, notices = AutoCompaction(2), list[str]()
    due = compaction.check_due(with_usage(chat, 100))
    assert due

    assert await compaction.compact_chat(chat, due, notices.append) is None

    assert notices[1:] == ["not compacted: the model returned an empty summary"]
    assert compaction.check_due(with_usage(chat, 109)) is None
    assert compaction.check_due(with_usage(chat, 111)) == CompactionDue(111, 2, None)

    await compaction.compact_chat(chat, CompactionDue(10, 2, None), notices.append)

    assert compaction.check_due(with_usage(chat, 11)) == CompactionDue(11, 2, None)


class OtherScopeEndpoint:
    """The same endpoint with another scope."""

    def __init__(self, endpoint: Endpoint, scope: Scope) -> None:
        self._endpoint, self.scope = endpoint, scope

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)


@pytest.mark.parametrize(
    ("scope", "is_supported"),
    [
        (EMBEDDED_SCOPE, True),
        (Scope("https://api.openai.com/v1"), True),
        (Scope("https://openai.com/v1"), True),
        (Scope("https://me.openai.azure.com"), True),
        (Scope("https://notopenai.com/v1"), False),
        (Scope("https://gateway.example/openai.com"), False),
        (Scope("no url"), False),
    ],
)
async def test_the_endpoint_of_a_conversation_compacts_it_where_it_can(
    case: CompactionCase, scope: Scope, is_supported: bool
) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION, turns=1)
    chat.options = replace(chat.options, parameters={"temperature": 1})
    chat.deps = chat.deps._replace(endpoint=cast(Endpoint, OtherScopeEndpoint(chat.deps.endpoint, scope)))
    notices: list[str] = []

    assert await AutoCompaction(50).compact_chat(chat, CompactionDue(60, 50, None), notices.append) is None

    compaction = {"context_management": [{"type": "compaction", "compact_threshold": 50}]}
    assert chat.options.parameters == {"temperature": 1, **(compaction if is_supported else {})}
    assert notices == [
        "the history has 60 tokens; its endpoint will compact it"
        if is_supported
        else "the history has 60 tokens; its endpoint does not compact automatically: "
        "convo compact HANDLE --yes continues in a new conversation"
    ]
