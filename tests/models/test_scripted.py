"""The scripted model returns the replies of its file, the same in each run."""

import json
from pathlib import Path
from typing import Any

import pytest

from convo.errors import KeyRefused, StreamBroken, TryLater, Unreadable
from convo.history.items import Item, assistant_message, user_message
from convo.models.base import ModelRequest
from convo.models.scripted import ScriptedModel, count_prompts
from convo.models.stream import make_usage
from tests.clock import FixedClock, counting_ids
from tests.models.model_calls import collect_events, deltas, final_response, make_request, output_text, read_events

CALL: Item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c1", "output": "12"}


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def model(clock: FixedClock) -> ScriptedModel:
    return ScriptedModel(clock, counting_ids())


def script_name(raw: str) -> str:
    path = Path("script.json")  # every test runs in a folder of its own
    path.write_text(raw, encoding="utf-8")
    return str(path)


def script(*replies: Any, **more: Any) -> str:
    return script_name(json.dumps({"replies": replies, **more}))


async def test_replies_follow_the_order_of_user_messages_and_the_last_repeats(model: ScriptedModel) -> None:
    name = script({"text": "one"}, {"text": "two"})
    history = [
        user_message("a"),
        assistant_message("one"),
        user_message("b"),
        assistant_message("two"),
        user_message("c"),
    ]

    answers = [output_text(await final_response(model, ModelRequest(name, history[:length]))) for length in (1, 3, 5)]

    assert answers == ["one", "two", "two"]


async def test_equal_requests_get_equal_answers(model: ScriptedModel) -> None:
    request = ModelRequest(script({"text": "one"}, {"text": "two"}), [user_message("a")])

    assert (
        output_text(await final_response(model, request)) == output_text(await final_response(model, request)) == "one"
    )


async def test_tool_outputs_are_answered_too(model: ScriptedModel) -> None:
    name = script({"call": {"name": "weather", "arguments": {"city": "Oslo"}}}, {"text": "12 degrees"})

    first_response = await final_response(model, ModelRequest(name, [user_message("?")]))
    response = await final_response(model, ModelRequest(name, [user_message("?"), CALL, CALL, OUTPUT, OUTPUT]))

    assert [(item["name"], json.loads(item["arguments"])) for item in first_response["output"]] == [
        ("weather", {"city": "Oslo"})
    ]
    assert output_text(response) == "12 degrees"


async def test_echo_answers_with_the_last_user_message(model: ScriptedModel) -> None:
    assert (
        output_text(
            await final_response(
                model, make_request(user_message("a"), assistant_message("x"), user_message("b c"), model="echo")
            )
        )
        == "b c"
    )


async def test_text_is_streamed_in_chunks_with_a_delay_before_each(model: ScriptedModel, clock: FixedClock) -> None:
    request = ModelRequest(script({"text": "abcdefgh"}, chunk=3, delay_s=0.5), [user_message("a")])

    assert deltas(await read_events(model, request)) == ["abc", "def", "gh"]
    assert clock.sleeps_s == [0.5, 0.5, 0.5]


async def test_output_items_are_returned_as_the_script_has_them(model: ScriptedModel) -> None:
    items = [
        {"type": "tomorrows_kind", "id": "t_1", "x": {"y": 1}},
        {"id": "msg_9", **assistant_message("hi"), "phase": "z"},
    ]

    response = await final_response(model, ModelRequest(script({"output": items}), [user_message("a")]))

    assert response["output"] == items


async def test_a_scripted_refusal_becomes_a_refusal(model: ScriptedModel) -> None:
    events = await read_events(model, ModelRequest(script({"refusal": "I will not."}), [user_message("a")]))

    assert "".join(deltas(events, "refusal")) == "I will not."


@pytest.mark.parametrize(("status", "kind"), [(503, TryLater), (401, KeyRefused)])
async def test_a_scripted_error_has_the_form_of_a_provider_error(
    model: ScriptedModel, status: int, kind: type[Exception]
) -> None:
    name = script({"error": {"code": "overloaded", "message": "Busy.", "status": status}}, {"text": "again"})

    with pytest.raises(kind, match="Busy") as error:
        await read_events(model, ModelRequest(name, [user_message("a")]))

    assert error.value.code == "overloaded"  # type: ignore[attr-defined]


async def test_a_scripted_error_after_text_breaks_the_stream(model: ScriptedModel) -> None:
    events: list[Any] = []
    name = script({"text": "half an ans", "error": {"message": "Gone"}})

    with pytest.raises(StreamBroken, match="Gone"):
        await collect_events(events, model, ModelRequest(name, [user_message("a")]))

    assert deltas(events) == ["half an ans"]


async def test_a_scripted_error_without_a_message_has_one(model: ScriptedModel) -> None:
    with pytest.raises(StreamBroken, match=r"^the script ended the response$"):
        await read_events(model, ModelRequest(script({"text": "half", "error": {"status": 500}}), [user_message("a")]))


async def test_each_word_is_one_token_and_the_token_limit_is_honoured(model: ScriptedModel) -> None:
    request = make_request(
        user_message("a b c"),
        model=script({"text": "one two three four"}),
        instructions="be brief",
        max_output_tokens=2,
    )

    response = await final_response(model, request)

    assert (output_text(response), response["incomplete_details"]) == ("one two", {"reason": "max_output_tokens"})
    assert response["usage"] == make_usage(5, 2)
    assert await model.count(request) == 5


BAD_SCRIPTS = {
    "a list": ("[]", "it has no list of replies"),
    "no replies": ('{"replies": []}', "it has no list of replies"),
    "a string as a reply": ('{"replies": ["hi"]}', "reply 1 is not an object"),
    "an empty reply": ('{"replies": [{}]}', "reply 1 is not an object"),
    "an unknown form": ('{"replies": [{"text": "a"}, {"txt": "b"}]}', "reply 2 has a wrong 'txt'"),
    "text that is no string": ('{"replies": [{"text": 1}]}', "reply 1 has a wrong 'text'"),
    "a call without a name": ('{"replies": [{"call": {}}]}', "reply 1 has a call without a name"),
    "output without items": ('{"replies": [{"output": ["x"]}]}', "reply 1 has output that is not a list of items"),
    "an empty chunk": ('{"replies": [{"text": "a"}], "chunk": 0}', "chunk is not a number of characters"),
    "a delay as text": ('{"replies": [{"text": "a"}], "delay_s": "long"}', "delay_s is not a number of seconds"),
    "a negative delay": ('{"replies": [{"text": "a"}], "delay_s": -1}', "delay_s is not a number of seconds"),
    "usage as text": (
        '{"replies": [{"text": "a", "usage": {"cached": "1"}}]}',
        "reply 1 has a usage with other values than numbers of cached, written, reasoning",
    ),
    "usage of another name": (
        '{"replies": [{"text": "a", "usage": {"input": 1}}]}',
        "reply 1 has a usage with other values than numbers of cached, written, reasoning",
    ),
    "an unknown field": ('{"replies": [{"text": "a"}], "chunks": 1}', "it has the unknown field 'chunks'"),
}


@pytest.mark.parametrize(("raw", "text"), BAD_SCRIPTS.values(), ids=BAD_SCRIPTS)
async def test_an_invalid_script_is_refused_with_its_mistake(model: ScriptedModel, raw: str, text: str) -> None:
    with pytest.raises(Unreadable) as error:
        await read_events(model, make_request(user_message("a"), model=script_name(raw)))

    assert error.value.message == f"script.json is not a script: {text}"
    assert error.value.hint == 'a script begins with {"replies": [{"text": "..."}]}'


@pytest.mark.parametrize("raw", ["{", "[" * 100_000], ids=["cut", "nested too deeply"])
async def test_a_script_that_is_not_json_is_refused(model: ScriptedModel, raw: str) -> None:
    with pytest.raises(Unreadable, match=r"^script.json is not JSON: "):
        await read_events(model, make_request(user_message("a"), model=script_name(raw)))


async def test_a_missing_script_and_a_folder_are_refused(model: ScriptedModel) -> None:
    for name in ("missing.json", "."):
        with pytest.raises(Unreadable, match=f"^{name} cannot be read: "):
            await read_events(model, make_request(user_message("a"), model=name))


async def test_a_reply_may_have_reasoning_and_usage(model: ScriptedModel) -> None:
    name = script({"reasoning": "two and two", "text": "4", "usage": {"cached": 1, "written": 1}})

    response = await final_response(model, ModelRequest(name, [user_message("2+2, please")]))

    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["output"][0]["content"] == [{"type": "reasoning_text", "text": "two and two"}]
    assert response["usage"] == make_usage(2, 4, cached=1, written=1, reasoning=3)


@pytest.mark.parametrize("usage", [{"cached": "many"}, {"tokens": 3}])
async def test_an_invalid_usage_is_refused(model: ScriptedModel, usage: Any) -> None:
    with pytest.raises(Unreadable, match="reply 1 has a usage with other values than numbers"):
        await final_response(model, ModelRequest(script({"text": "4", "usage": usage}), [user_message("?")]))


async def test_a_call_has_defaults_and_arguments_in_two_forms(model: ScriptedModel) -> None:
    name = script(
        {"call": {"name": "f"}},
        {"call": {"name": "f", "call_id": "c9", "arguments": '{"a": 1'}},
        {"call": {"name": "f", "arguments": {"a": "b" * 12}}},
    )
    calls = []
    for prompts in range(1, 4):
        events = await read_events(model, ModelRequest(name, [user_message("?")] * prompts))
        (item,) = events[-1]["response"]["output"]
        calls.append((item["call_id"], item["arguments"], len(deltas(events, "function_call_arguments"))))

    assert calls == [("call_1", "{}", 1), ("c9", '{"a": 1', 1), ("call_2", '{"a": "bbbbbbbbbbbb"}', 2)]


async def test_text_is_streamed_in_chunks_of_16_characters(model: ScriptedModel, clock: FixedClock) -> None:
    request = ModelRequest(script({"text": "x" * 33, "reasoning": "y" * 17, "refusal": "z"}), [user_message("a")])

    events = await read_events(model, request)

    assert [len(word) for word in deltas(events)] == [16, 16, 1]
    assert [len(word) for word in deltas(events, "reasoning_text")] == [16, 1]
    assert clock.sleeps_s == []


@pytest.mark.parametrize(
    ("fields", "status", "retry_after_s"), [({"retry_after_s": 2.5}, 500, 2.5), ({"status": 429}, 429, None)]
)
async def test_a_scripted_error_may_say_when_to_retry(
    model: ScriptedModel, fields: dict[str, Any], status: int, retry_after_s: float | None
) -> None:
    with pytest.raises(TryLater) as error:
        await read_events(model, ModelRequest(script({"error": {"message": "Busy.", **fields}}), [user_message("a")]))

    assert (error.value.message, error.value.status, error.value.retry_after_s) == ("Busy", status, retry_after_s)


async def test_a_scripted_error_after_text_has_its_code(model: ScriptedModel) -> None:
    name = script({"text": "half", "error": {"code": "overloaded", "message": "Gone"}})

    with pytest.raises(StreamBroken) as error:
        await read_events(model, ModelRequest(name, [user_message("a")]))

    assert (error.value.message, error.value.code) == ("Gone", "overloaded")


@pytest.mark.parametrize(
    ("items", "number"),
    [
        ([], 1),
        ([assistant_message("x")], 1),
        ([user_message("a"), CALL, OUTPUT], 2),
        ([user_message("a"), CALL, CALL, OUTPUT, OUTPUT, assistant_message("x"), CALL, OUTPUT, user_message("b")], 4),
    ],
)
def test_prompts_are_user_messages_and_batches_of_outputs(items: list[Item], number: int) -> None:
    assert count_prompts(items) == number


@pytest.mark.parametrize(("limit", "text", "status"), [(2, "a b", "completed"), (1, "a", "incomplete")])
async def test_a_truncated_reply_keeps_its_reasoning_and_usage_and_no_more(
    model: ScriptedModel, limit: int, text: str, status: str
) -> None:
    name = script({"text": "a b", "reasoning": "r", "usage": {"cached": 1}, "refusal": "No."})

    response = await final_response(model, make_request(user_message("a"), model=name, max_output_tokens=limit))

    assert response["status"] == status
    reasoning, message = response["output"]
    parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    refusals = [{"type": "refusal", "refusal": "No."}] if limit == 2 else []
    assert message["content"] == [*parts, *refusals]
    assert (reasoning["type"], response["usage"]["input_tokens_details"]["cached_tokens"]) == ("reasoning", 1)


async def test_echo_without_a_user_message_is_empty_and_a_closed_model_reads_its_script_again(
    model: ScriptedModel,
) -> None:
    assert (await final_response(model, make_request(assistant_message("x"), model="echo")))["output"] == []
    name = script({"text": "one"})
    await model.warm(name)
    await model.check_request(ModelRequest(name, []))
    assert await model.compact(ModelRequest(name, [])) is None
    script({"text": "two"})
    request = ModelRequest(name, [user_message("a")])
    assert output_text(await final_response(model, request)) == "one"

    await model.aclose()

    assert output_text(await final_response(model, request)) == "two"
    for missing in (model.warm("missing.json"), model.check_request(ModelRequest("missing.json", []))):
        with pytest.raises(Unreadable):
            await missing


async def test_a_script_in_the_home_folder_is_found(model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    script({"text": "one"})

    assert output_text(await final_response(model, ModelRequest("~/script.json", [user_message("a")]))) == "one"
