"""Summaries: histories that are too long for one request, and invalid summaries."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from convo.chat.turn import RequestOptions
from convo.compaction.planning import CompactionMethod, CompactionPlan
from convo.endpoints.base import Endpoint
from convo.errors import ConvoError, EndpointFault, RequestRefused, StreamBroken, WindowExceeded
from convo.history.items import Item, Json, StreamEvent, assistant_message, user_message
from convo.stores.memory import MemoryStore
from convo.transfer.compact import run_compaction
from tests.embedded_endpoint import make_embedded_endpoint

LONGEST = 1_000
"""The maximum length of an input in characters of JSON."""

TURNS: tuple[Item, ...] = tuple(
    item
    for number in range(6)
    for item in (user_message(f"{number} " + "word " * 40), assistant_message(f"{number} " + "so " * 40))
)


class Narrow:
    """An endpoint that raises `refusal` for an input longer than LONGEST and records the other requests."""

    def __init__(self, endpoint: Endpoint, refusal: ConvoError) -> None:
        self._endpoint, self._refusal = endpoint, refusal
        self.bodies: list[Mapping[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        if len(json.dumps(body["input"])) > LONGEST:
            raise self._refusal
        self.bodies.append(body)
        async for event in self._endpoint.create(body):
            yield event


class ShortEndpoint:
    """An endpoint that limits every response to one token."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        return self._endpoint.create({**body, "max_output_tokens": 1})


def make_options(folder: Path, *replies: Mapping[str, Any]) -> RequestOptions:
    script = folder / "script.json"
    script.write_text(json.dumps({"replies": replies}), encoding="utf-8")
    return RequestOptions(f"scripted/{script}", f"scripted/{script}")


def narrow(refusal: ConvoError) -> Narrow:
    return Narrow(make_embedded_endpoint(MemoryStore()), refusal)


PLAN = CompactionPlan(CompactionMethod.SUMMARY, TURNS)


@pytest.mark.parametrize(
    "refusal",
    [
        WindowExceeded("m", 2, 1),
        RequestRefused("too long", code="context_length_exceeded"),
        EndpointFault("too long", code="context_length_exceeded"),
    ],
    ids=["window", "refused", "failed"],
)
async def test_a_history_too_long_for_one_summary_is_summarized_in_several_steps(
    tmp_path: Path, refusal: ConvoError
) -> None:
    """Each step includes the summary of the previous step, and the usage is the total of all steps."""
    endpoint = narrow(refusal)
    result = await run_compaction(
        PLAN, make_options(tmp_path, {"text": "They counted."}), cast(Endpoint, endpoint), allow_fallback=True
    )
    assert len(endpoint.bodies) > 2
    assert "They counted." in json.dumps(endpoint.bodies[-1]["input"])
    assert all(body["store"] is False for body in endpoint.bodies)
    assert (result.usage or {})["output_tokens"] == 2 * len(endpoint.bodies)


class UnmeasuredEndpoint(Narrow):
    """A narrow endpoint that reports the usage of its first response only."""

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        async for event in super().create(body):
            if event["type"] == "response.completed" and len(self.bodies) > 1:
                yield {**event, "response": {**event["response"], "usage": None}}
            else:
                yield event


async def test_a_summary_in_several_steps_has_the_usage_that_was_reported(tmp_path: Path) -> None:
    endpoint = UnmeasuredEndpoint(make_embedded_endpoint(MemoryStore()), WindowExceeded("m", 2, 1))
    result = await run_compaction(
        PLAN, make_options(tmp_path, {"text": "They counted."}), cast(Endpoint, endpoint), allow_fallback=True
    )
    assert len(endpoint.bodies) > 2
    assert (result.usage or {})["output_tokens"] == 2


async def test_a_turn_that_is_too_long_for_the_model_is_refused(tmp_path: Path) -> None:
    plan = PLAN._replace(compacted_items=(user_message("word " * 1_000), assistant_message("so")))
    with pytest.raises(WindowExceeded):
        await run_compaction(
            plan,
            make_options(tmp_path, {"text": "x"}),
            cast(Endpoint, narrow(WindowExceeded("m", 2, 1))),
            allow_fallback=True,
        )


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"text": ""}, StreamBroken),
        ({"refusal": "I will not."}, StreamBroken),
        ({"call": {"name": "look", "arguments": {}}}, StreamBroken),
        ({"text": "half", "error": {"message": "gone"}}, EndpointFault),
    ],
)
async def test_an_empty_refused_or_interrupted_summary_is_an_error(
    tmp_path: Path, reply: Mapping[str, Any], error: type[ConvoError]
) -> None:
    endpoint = make_embedded_endpoint(MemoryStore())
    with pytest.raises(error):
        await run_compaction(
            PLAN._replace(compacted_items=TURNS[:4]), make_options(tmp_path, reply), endpoint, allow_fallback=True
        )


async def test_a_truncated_summary_is_reported(tmp_path: Path) -> None:
    endpoint = cast(Endpoint, ShortEndpoint(make_embedded_endpoint(MemoryStore())))
    result = await run_compaction(
        PLAN._replace(compacted_items=TURNS[:4]),
        make_options(tmp_path, {"text": "They counted."}),
        endpoint,
        allow_fallback=True,
    )
    assert "They" in json.dumps(result.replacements)
    assert result.notes == ("the summary is incomplete (max_output_tokens): its end is missing",)


async def test_the_focus_and_the_instructions_are_sent_to_the_model(tmp_path: Path) -> None:
    endpoint = narrow(WindowExceeded("m", 2, 1))
    options = replace(make_options(tmp_path, {"text": "They counted."}), instructions="Be brief.")
    await run_compaction(
        PLAN._replace(compacted_items=TURNS[:4], focus="the numbers"),
        options,
        cast(Endpoint, endpoint),
        allow_fallback=True,
    )
    assert "the numbers" in endpoint.bodies[0]["instructions"]
    assert "Be brief." in json.dumps(endpoint.bodies[0]["input"])


@pytest.mark.parametrize(
    "refusal", [RequestRefused("no", code="invalid_request_error"), EndpointFault("gone")], ids=["refused", "failed"]
)
async def test_after_another_error_the_history_is_not_split(tmp_path: Path, refusal: ConvoError) -> None:
    endpoint = narrow(refusal)
    with pytest.raises(type(refusal)) as caught:
        await run_compaction(PLAN, make_options(tmp_path, {"text": "x"}), cast(Endpoint, endpoint), allow_fallback=True)
    assert (caught.value, endpoint.bodies) == (refusal, [])


class EndlessEndpoint(ShortEndpoint):
    """An endpoint whose streams end before the response is complete."""

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        async for event in super().create(body):
            if event["type"] != "response.incomplete":
                yield event


async def test_a_stream_that_ends_early_is_an_error(tmp_path: Path) -> None:
    endpoint = EndlessEndpoint(make_embedded_endpoint(MemoryStore()))
    with pytest.raises(StreamBroken, match=r"^the endpoint's stream ended before the response was complete$"):
        await run_compaction(
            PLAN, make_options(tmp_path, {"text": "two words"}), cast(Endpoint, endpoint), allow_fallback=True
        )
