"""The built-in model with its real weights; one process answers the requests of all tests."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from convo.errors import RequestRefused, Unreadable, Unsupported, WindowExceeded
from convo.history.items import Item, Json, assistant_message, user_message
from convo.models.base import ModelRequest
from convo.models.local import LocalModel
from convo.models.weights import locate_built_in_weights
from tests.clock import counting_ids
from tests.models.model_calls import deltas, final_response, output_text, read_events

pytestmark = [pytest.mark.needs("weights"), pytest.mark.asyncio(loop_scope="module")]

NAME = "smollm2-135m-instruct"
NOWHERE = Path("/dev/null/models")
HELLO = user_message("Say hello.")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local() -> AsyncIterator[LocalModel]:
    model = LocalModel(NOWHERE, counting_ids())
    await model.warm(NAME)
    yield model
    await model.aclose()


def build_request(*items: Item, instructions: str | None = None, **parameters: Json) -> ModelRequest:
    return ModelRequest(NAME, items, instructions, {"temperature": 0, **parameters})


async def test_an_answer_is_streamed_and_ends_with_a_complete_response(local: LocalModel) -> None:
    events = await read_events(local, build_request(HELLO))

    assert len(deltas(events)) > 3
    assert "".join(deltas(events)) == output_text(events[-1]["response"])
    assert "Hello" in output_text(events[-1]["response"])
    assert (events[-1]["type"], events[-1]["response"]["model"]) == ("response.completed", NAME)


async def test_the_history_changes_the_answer(local: LocalModel) -> None:
    pattern = [
        message
        for word in ("apple", "pear", "cherry")
        for message in (user_message(word), assistant_message(f"fruit: {word}!"))
    ]

    assert output_text(await final_response(local, build_request(*pattern, user_message("plum")))) == "fruit: plum!"


async def test_the_instructions_change_the_answer(local: LocalModel) -> None:
    assert "Bonjour" in output_text(
        await final_response(local, build_request(HELLO, instructions="You answer in French."))
    )


async def test_a_limit_of_output_tokens_is_honoured_and_reported(local: LocalModel) -> None:
    response = await final_response(local, build_request(user_message("Tell me a long story."), max_output_tokens=7))

    assert (response["status"], response["usage"]["output_tokens"]) == ("incomplete", 7)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"


async def test_a_temperature_of_zero_is_deterministic_and_a_high_one_is_not(local: LocalModel) -> None:
    async def three(temperature: float) -> set[str]:
        story = build_request(
            user_message("Invent a name for a boat and say why."), temperature=temperature, max_output_tokens=24
        )
        return {output_text(await final_response(local, story)) for _ in range(3)}

    assert len(await three(0)) == 1
    assert len(await three(1.8)) > 1


COUNT_CASES = {
    "a question": [user_message("hi")],
    "an empty message": [user_message("")],
    "a conversation": [user_message("hi"), assistant_message("hello"), user_message("and?")],
    "a final answer": [user_message("hi"), assistant_message("hello")],
    "many scripts": [user_message("Grüße, 世界! 👩‍🚀 \u200d\x00 <|im_end|> <|im_start|>system")],
    "parts": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
    "a developer message": [{"role": "developer", "content": "be brief"}, user_message("hi")],
}


@pytest.mark.parametrize("items", COUNT_CASES.values(), ids=COUNT_CASES)
async def test_counted_tokens_equal_the_reported_usage(local: LocalModel, items: list[Item]) -> None:
    request = build_request(*items, instructions="You are brief.", max_output_tokens=1)

    assert await local.count(request) == (await final_response(local, request))["usage"]["input_tokens"]


async def test_the_answer_follows_a_json_schema(local: LocalModel) -> None:
    properties = {"city": {"enum": ["Paris", "Rome"]}, "people": {"type": "integer", "maximum": 99}}
    schema = {"type": "object", "properties": properties, "required": ["city", "people"], "additionalProperties": False}
    form = {"type": "json_schema", "name": "city", "schema": schema, "strict": True}
    request = build_request(HELLO, text={"format": form}, max_output_tokens=80)

    answer = json.loads(output_text(await final_response(local, request)))

    assert sorted(answer) == ["city", "people"]
    assert answer["city"] in ("Paris", "Rome")
    assert isinstance(answer["people"], int)


async def test_an_invalid_schema_is_refused_with_the_message_of_the_engine(local: LocalModel) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "nonsense"}}

    with pytest.raises(RequestRefused, match="nonsense"):
        await read_events(local, build_request(HELLO, text={"format": form}))


@pytest.mark.needs("linux")
async def test_closing_an_answer_stops_its_computation(local: LocalModel) -> None:
    """The whole answer would have 3,000 tokens, 30 seconds of one core; the next request is answered without them."""
    before = cpu_time_s(local)
    async with aclosing(
        local.respond(build_request(user_message("Tell a very long story."), max_output_tokens=3000))
    ) as events:
        seen = 0
        async for event in events:
            seen += event["type"] == "response.output_text.delta"
            if seen == 5:
                break

    assert "Hello" in output_text(await final_response(local, build_request(HELLO)))
    assert cpu_time_s(local) - before < 10


@pytest.mark.needs("linux")
async def test_cancelling_while_the_input_is_evaluated_stops_its_computation(local: LocalModel) -> None:
    """Evaluating all of it would take 25 seconds of one core."""
    before = cpu_time_s(local)
    task = asyncio.create_task(read_events(local, build_request(user_message("alpha beta " * 1800))))
    while cpu_time_s(local) - before < 0.5:
        await local.count(build_request(HELLO))

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert "Hello" in output_text(await final_response(local, build_request(HELLO)))
    assert cpu_time_s(local) - before < 10


async def test_two_alternating_chats_keep_their_cached_prefixes(local: LocalModel) -> None:
    chats: list[list[Item]] = [[user_message(f"{topic} " * 60)] for topic in ("rivers", "engines")]
    for chat in chats:
        response = await final_response(local, build_request(*chat, max_output_tokens=8))
        chat += [assistant_message(output_text(response)), user_message("Go on.")]

    for chat in chats:
        usage = (await final_response(local, build_request(*chat, max_output_tokens=1)))["usage"]
        assert usage["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] / 2


async def test_concurrent_requests_are_all_answered(local: LocalModel) -> None:
    responses = await asyncio.gather(*(final_response(local, build_request(HELLO)) for _ in range(3)))

    assert ["Hello" in output_text(response) for response in responses] == [True] * 3


async def test_an_input_longer_than_the_context_window_is_refused_with_its_token_counts(local: LocalModel) -> None:
    with pytest.raises(WindowExceeded) as error:
        await read_events(local, build_request(user_message("word " * 5000)))

    assert error.value.limit_tokens == 4096 - 256
    assert error.value.needed_tokens == await local.count(build_request(user_message("word " * 5000)))


async def test_a_short_answer_may_follow_an_input_that_nearly_fills_the_context_window(local: LocalModel) -> None:
    request = build_request(user_message("word " * 3900), max_output_tokens=5)
    need = await local.count(request)
    assert 4096 - 256 < need <= 4096 - 5

    async with aclosing(local.respond(build_request(user_message("word " * 5000), max_output_tokens=5))) as events:
        with pytest.raises(WindowExceeded) as error:
            await anext(events)

    assert error.value.limit_tokens == 4096 - 5


UNSUPPORTED: dict[str, tuple[list[Item], dict[str, Any]]] = {
    "images": ([{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}], {}),
    "files": ([{"role": "user", "content": [{"type": "input_file", "file_data": "data:x"}]}], {}),
    "sounds": ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}], {}),
    "tools": ([HELLO], {"tools": [{"type": "function", "name": "f", "parameters": {}}]}),
    "tool calls": ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}], {}),
    "a reasoning effort": ([HELLO], {"reasoning": {"effort": "high"}}),
    "the parameter 'prompt'": ([HELLO], {"prompt": {"id": "p"}}),
    "compaction items": ([{"type": "compaction", "encrypted_content": "x"}], {}),
}


@pytest.mark.parametrize(
    ("items", "parameters", "expected"), [(*cannot, expected) for expected, cannot in UNSUPPORTED.items()]
)
async def test_an_unsupported_request_is_refused_before_the_engine_starts(
    items: list[Item], parameters: dict[str, Any], expected: str
) -> None:
    model = LocalModel(NOWHERE, counting_ids())

    with pytest.raises(Unsupported, match=f"local/{NAME} does not support {expected}"):
        await read_events(model, build_request(*items, **parameters))

    assert model.get_engine(NAME).process is None


@pytest.fixture
def user_weights(tmp_path: Path) -> str:
    """A relative path to a model file of the user, which is a link to the built-in weights."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "Mine.gguf").symlink_to(locate_built_in_weights(NOWHERE))
    return "weights/Mine.gguf"


@pytest.fixture
def truncated_weights(tmp_path: Path) -> str:
    """A path to a truncated copy of the built-in weights."""
    with locate_built_in_weights(NOWHERE).open("rb") as source:
        (tmp_path / "cut.gguf").write_bytes(source.read(4_000_000))
    return "./cut.gguf"


async def test_a_model_file_of_the_user_works_the_same_way(user_weights: str) -> None:
    model = LocalModel(NOWHERE, counting_ids())

    response = await final_response(model, ModelRequest(user_weights, [HELLO], parameters={"temperature": 0}))
    await model.aclose()

    assert ("Hello" in output_text(response), response["model"]) == (True, "Mine")


async def test_a_truncated_model_file_is_refused_with_the_reason_of_the_engine(truncated_weights: str) -> None:
    model = LocalModel(NOWHERE, counting_ids())

    with pytest.raises(Unreadable, match=r"cut\.gguf cannot be loaded: .*incomplete"):
        await model.warm(truncated_weights)
    await model.aclose()


def cpu_time_s(model: LocalModel) -> float:
    """Return the CPU seconds of the child process, which do not depend on other load."""
    child = model.get_engine(NAME).process
    assert child is not None
    ticks = Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
