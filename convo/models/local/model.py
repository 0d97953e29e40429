"""The models of this machine, as models like any other.

An ask is refused where these models could only pretend: they read text and nothing else, and the
engine would ignore tools without a word. What is left goes to the child as chat completions. Its
own tokenizer counts each input first, because an input that does not fit is better refused before
it is read than after half a minute.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import StreamBroken, Unreachable, Unsupported, WindowExceeded
from convo.ids import NewId
from convo.items import Event, Item, kind
from convo.models.chat import ChatModel
from convo.models.chat_messages import media
from convo.models.chat_request import Dialect, ignored, request
from convo.models.contract import Ask
from convo.models.local.engine import Engine
from convo.models.local.weights import BUILT_IN, locate, verify_once

ROOM_TO_ANSWER = 256
"""Tokens of the window that an input must leave, or fewer where the ask wants a shorter answer."""

SAMPLING = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.05}
"""What models this small read best with."""

BOUND = {"max_tokens": 1024}
"""The built-in model sometimes talks in circles; unbounded, it would do so for 40 seconds."""

ENGINE_FIELDS = frozenset({"top_k", "seed", "stop"})
"""The extra fields that the engine takes, see `convo.models.ignored`."""

MEDIA = {"input_image": "images", "input_file": "files", "input_audio": "sounds"}


def refuse(ask: Ask, who: str) -> None:
    """Refuse what the engine cannot do or would ignore.

    raises:  Unsupported
    """
    for form in media(ask.input):
        raise Unsupported(who, MEDIA.get(form, f"{form} parts"), param="input")
    for item in ask.input:
        if kind(item) in ("function_call", "function_call_output"):
            raise Unsupported(who, "calls of tools", param="input")
    if ask.parameters.get("tools"):
        raise Unsupported(who, "tools", param="tools")
    if (ask.parameters.get("reasoning") or {}).get("effort") not in (None, "none"):
        raise Unsupported(who, "an effort of reasoning", param="reasoning.effort")
    for name in ("top_logprobs", "include"):
        if request(Ask(ask.model, (), parameters={name: ask.parameters.get(name)}), who).get("logprobs"):
            raise Unsupported(who, "logprobs", param=name)
    request(ask, who)


class LocalModel:
    """Every model of this machine; one child for each set of weights that is asked for.

    models:    the folder of weights that convo fetched
    loopback:  None: only where there are no unix sockets
    """

    def __init__(
        self, models: Path, new_id: NewId, *, loopback: bool | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._models, self._new_id, self._loopback, self._limits = models, new_id, loopback, limits
        self._engines: dict[Path, Engine] = {}
        self._whole: set[Path] = set()

    async def warm(self, model: str) -> None:
        """Load `model` now. raises: ModelMissing, Unreadable, ModelFault"""
        await self._verified(model)
        await self.engine(model).up()

    async def check_request(self, ask: Ask) -> None:
        """Look for the weights and at the request; nothing is loaded. raises: Unsupported, ModelMissing, Unreadable"""
        refuse(ask, f"local/{self.engine(ask.model).name}")

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        engine, chat, ask = await self._ready(ask)
        try:
            need, room = await _count(chat, ask), engine.window - _room_to_answer(ask)
            if need > room:
                raise WindowExceeded(f"local/{ask.model}", need, room)
            async with aclosing(chat.respond(ask)) as events:
                async for event in events:
                    yield event
        except (StreamBroken, Unreachable) as broken:
            how = await engine.how_it_ended()
            if how is None:
                raise
            stopped = f"the local engine stopped while it worked ({how})"
            raise StreamBroken(stopped, code="engine_stopped", hint="/retry starts it again") from broken

    async def count(self, ask: Ask) -> int:
        """Exact input tokens, the model's chat template included."""
        _, chat, ask = await self._ready(ask)
        return await _count(chat, ask)

    def ignored(self, ask: Ask) -> tuple[str, ...]:
        return ignored(ask, Dialect(reasons=False, extra=ENGINE_FIELDS))

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        """The engine has no compaction of its own."""
        return None

    async def aclose(self) -> None:
        while self._engines:
            _, engine = self._engines.popitem()
            await engine.down()

    def engine(self, model: str) -> Engine:
        """The engine that runs `model`, started or not."""
        name, weights = locate(model, self._models)
        if weights not in self._engines:
            defaults = {**SAMPLING, **(BOUND if name == BUILT_IN.name else {})}
            self._engines[weights] = Engine(
                name, weights, self._new_id, defaults=defaults, loopback=self._loopback, limits=self._limits
            )
        return self._engines[weights]

    async def _verified(self, model: str) -> None:
        """Verify weights before they are loaded, in a thread: they are large. raises: ModelMissing, Unreadable"""
        _, weights = locate(model, self._models)
        if weights not in self._whole:
            await asyncio.to_thread(verify_once, weights, self._models)
            self._whole.add(weights)

    async def _ready(self, ask: Ask) -> tuple[Engine, ChatModel, Ask]:
        """Whoever answers `ask`, and the ask under the name that the model has without its path."""
        await self._verified(ask.model)
        engine = self.engine(ask.model)
        ask = replace(ask, model=engine.name)
        refuse(ask, f"local/{ask.model}")
        return engine, await engine.up(), ask


async def _count(chat: ChatModel, ask: Ask) -> int:
    counted = await chat.fetch("/chat/completions/input_tokens", chat.body(ask))
    return int(counted["input_tokens"])


def _room_to_answer(ask: Ask) -> int:
    wanted = ask.parameters.get("max_output_tokens")
    return min(wanted, ROOM_TO_ANSWER) if wanted else ROOM_TO_ANSWER
