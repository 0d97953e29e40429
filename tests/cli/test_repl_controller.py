"""The status line of a chat: its owner, model, tokens and cost."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from convo.cli.context import ChatOptions, ChatOutput
from convo.cli.deps import open_configured_store
from convo.cli.repl import ReplController
from convo.config.loader import SettingFlags, load_settings
from convo.history.records import Strategy
from convo.terminal.status_line import StatusLineState
from tests.command_runner import Convo

SETTINGS = """\
[windows."scripted/echo"]
context = 1000

[prices."scripted/echo"]
input = 1000000
output = 2000000
"""


async def status_line_of(options: ChatOptions) -> StatusLineState:
    settings = load_settings(None, SettingFlags(model="scripted/echo"))
    async with open_configured_store(settings) as store, AsyncExitStack() as exit_stack:
        controller = ReplController(settings, store, exit_stack, options, ChatOutput())
        chat = await controller.open()
        if chat.state.path:
            notices: list[str] = []
            chat.notify = notices.append
            assert (await controller.fork(chat, None)).notify == notices.append
        return await controller.load_status_line_state(chat)


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
def test_the_status_line_of_a_new_chat_has_its_owner_and_its_model() -> None:
    options = ChatOptions(strategies=(Strategy.CHAIN,))
    assert asyncio.run(status_line_of(options)) == StatusLineState("chain", "scripted/echo")
    assert asyncio.run(status_line_of(replace(options, name="plans"))).owner == "chain plans"
