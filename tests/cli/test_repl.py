"""The status line of a chat: its owner, model, tokens and cost."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from convo.cli.context import ChatContext, ChatOptions, ChatOutput
from convo.cli.deps import open_configured_store
from convo.cli.repl import Repl
from convo.cli.slash_commands import run_prompt_command
from convo.config.loader import SettingFlags, load_settings
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.inspect.view import sum_link_usage
from convo.terminal.prompt import PlainReader
from convo.terminal.status_line import StatusLineState
from tests.cli.chat_commands import LONG, scripted_flags
from tests.command_runner import Convo

SETTINGS = """\
[windows."scripted/echo"]
context = 1000

[prices."scripted/echo"]
input = 1000000
output = 2000000
"""


@asynccontextmanager
async def open_repl(options: ChatOptions, model: str | None) -> AsyncGenerator[Repl]:
    settings = load_settings(None, SettingFlags(model=model))
    async with open_configured_store(settings) as store, AsyncExitStack() as exit_stack:
        context = ChatContext(settings, store, exit_stack, options, ChatOutput())
        yield Repl(await context.open(), PlainReader(), context, run_prompt_command)


async def status_line_of(options: ChatOptions) -> StatusLineState:
    async with open_repl(options, "scripted/echo") as repl:
        return await repl.load_status_line_state()


@pytest.fixture
def settings(home: Path) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(SETTINGS, encoding="utf-8")


@pytest.mark.usefixtures("settings")
def test_the_status_line_has_the_tokens_and_the_cost_of_the_chat(convo: Convo) -> None:
    convo("chat", "-m", "scripted/echo", "-n", "talk", "one two three")
    convo("chat", "--from", "talk", "four")
    assert asyncio.run(status_line_of(ChatOptions(handle="talk"))) == StatusLineState(
        "session talk", "scripted/echo", used_tokens=8, context_window=1000, cost_usd=18.0
    )


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(("owner", "text"), [("chain", "chain talk"), ("replay", "replay /")])
def test_the_status_line_names_a_chain_whose_handle_is_in_each_receipt(owner: str, text: str, convo: Convo) -> None:
    convo("chat", f"--{owner}", "-m", "scripted/echo", "-n", "talk", "one two three")
    assert asyncio.run(status_line_of(ChatOptions(handle="talk"))).owner.startswith(text)


@pytest.mark.usefixtures("settings")
def test_the_status_line_of_a_new_chat_has_its_owner_and_its_model() -> None:
    options = ChatOptions(strategies=(Strategy.CHAIN,))
    assert asyncio.run(status_line_of(options)) == StatusLineState("chain", "scripted/echo")
    assert asyncio.run(status_line_of(options._replace(name="plans"))).owner == "chain plans"


async def contexts_after_compaction(*, is_compacted_here: bool) -> list[int | None]:
    """Return the tokens of the status line at the first prompt, after /context, and those that /context shows."""
    async with open_repl(ChatOptions(handle="talk"), None) as repl:
        if is_compacted_here:
            await run_prompt_command(repl, "/compact")
        first = (await repl.load_status_line_state()).used_tokens
        _, usage = await repl.measure_context()
        repl.counts_tokens = True
        return [first, (await repl.load_status_line_state()).used_tokens, usage.total.tokens]


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("is_compacted_here", [True, False])
@pytest.mark.parametrize("owner", ["--session", "--chain"])
def test_after_a_compaction_the_status_line_has_the_tokens_of_context(
    owner: str, is_compacted_here: bool, convo: Convo
) -> None:
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    convo("chat", owner, "-n", "talk", *model, LONG)
    convo("chat", "--from", "talk", LONG)
    if not is_compacted_here:
        assert convo("compact", "talk").exit == 0
    tokens = asyncio.run(contexts_after_compaction(is_compacted_here=is_compacted_here))
    assert tokens == [tokens[-1]] * 3


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("turns_between", [1, 20])
def test_the_cost_of_the_status_line_is_that_of_all_requests(turns_between: int) -> None:
    async def costs() -> list[tuple[float | None, float | None]]:
        found = []
        async with open_repl(ChatOptions(strategies=(Strategy.SESSION,)), "scripted/echo") as repl:
            chat = repl.chat
            for _ in range(3):
                for _ in range(turns_between):
                    async with aclosing(chat.send([user_message("one two three")])) as events:
                        assert [event async for event in events]
                links = await chat.deps.store.links(chat.session.id)
                total = sum_link_usage(links, repl.context.settings.prices)
                found.append(((await repl.load_status_line_state()).cost_usd, total and total.known_cost_usd))
        return found

    for shown, total in asyncio.run(costs()):
        assert shown
        assert shown == total
