"""The response object, its events and the result of a turn, field by field."""

from dataclasses import replace
from typing import Any

import pytest

from convo.errors import LimitReached, StreamBroken
from convo.history.records import Link, Strategy
from convo.history.tree import Path, root_key
from convo.responses_api import response
from convo.responses_api.response import (
    TurnResult,
    add_usage,
    build_compaction_resource,
    build_created_event,
    build_response,
    build_terminal_event,
    finish_turn_link,
    result_from_event,
)

ROOT = root_key("local")
LINK = Link("resp_1", ROOT, ROOT, 1, "local/m", Strategy.CHAIN, "completed", 100.9, duration_s=2.2)
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "status": "completed"}


def test_a_response_shows_the_defaults_of_the_api() -> None:
    assert build_response(LINK, [MESSAGE]) == {
        "id": "resp_1",
        "object": "response",
        "created_at": 100,
        "completed_at": 103,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": "local/m",
        "output": [MESSAGE],
        "previous_response_id": None,
        "conversation": None,
        "store": True,
        "service_tier": "default",
        "reasoning": {"effort": None, "summary": None},
        "text": {"format": {"type": "text"}},
        "tools": [],
        "usage": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "prompt_cache_key": None,
        "safety_identifier": None,
        "temperature": 1.0,
        "tool_choice": "auto",
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "metadata": {},
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("access_programs", {"cyber": "standard"}),
        ("image", {"context_compression": "auto"}),
        ("moderation", {"model": "m"}),
        ("prompt", {"id": "pmpt_1"}),
        ("prompt_cache_options", {"mode": "implicit"}),
        ("prompt_cache_retention", "24h"),
        ("user", "u"),
        ("background", True),
        ("instructions", "Be brief."),
        ("max_output_tokens", 5),
        ("max_tool_calls", 6),
        ("parallel_tool_calls", False),
        ("presence_penalty", 0.5),
        ("frequency_penalty", 0.25),
        ("prompt_cache_key", "k"),
        ("safety_identifier", "s"),
        ("temperature", 0.5),
        ("tool_choice", "none"),
        ("top_logprobs", 3),
        ("top_p", 0.5),
        ("truncation", "auto"),
        ("metadata", {"a": "b"}),
        ("tools", [{"type": "web_search"}]),
    ],
)
def test_a_response_repeats_a_field_of_its_request(field: str, value: Any) -> None:
    resource = build_response(replace(LINK, parameters={field: value}), ())
    assert {**build_response(LINK, ()), field: value} == resource


def test_a_response_names_its_history() -> None:
    resource = build_response(
        replace(LINK, previous_response_id="resp_0", conversation_id="conv_1", is_stored=False), ()
    )
    assert (resource["previous_response_id"], resource["conversation"]) == ("resp_0", {"id": "conv_1"})
    assert resource["store"] is False


def test_a_tool_and_a_text_format_show_their_absent_fields() -> None:
    function = {"type": "function", "name": "f", "strict": True}
    custom = {"type": "custom", "name": "g"}
    schema = {"type": "json_schema"}
    resource = build_response(
        replace(LINK, parameters={"tools": [function, custom], "text": {"format": schema, "verbosity": "low"}}), ()
    )
    assert resource["tools"] == [{**function, "description": None, "parameters": None}, custom]
    assert resource["text"] == {
        "format": {"type": "json_schema", "name": None, "description": None, "schema": None, "strict": False},
        "verbosity": "low",
    }
    plain = build_response(replace(LINK, parameters={"text": {"format": {"type": "json_object"}}}), ())
    assert plain["text"] == {"format": {"type": "json_object"}}
    effort = build_response(replace(LINK, parameters={"reasoning": {"effort": "low"}}), ())
    assert effort["reasoning"] == {"effort": "low", "summary": None}


def test_a_response_without_a_duration_ended_when_it_began() -> None:
    assert build_response(replace(LINK, duration_s=None), ())["completed_at"] == 100
    assert build_response(replace(LINK, duration_s=0.0), ())["completed_at"] == 100


def test_a_failed_response_hides_the_limit_that_ended_it() -> None:
    error = {"code": "server_error", "message": "slow", "limit": "limits.response_s"}
    assert build_response(replace(LINK, status="failed", error=error), ())["error"] == {
        "code": "server_error",
        "message": "slow",
    }


# -- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        (
            {"input_tokens": 3},
            {
                "input_tokens": 3,
                "output_tokens": 0,
                "total_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        ),
        (
            {"output_tokens": 4, "total_tokens": 9, "input_tokens_details": {"cached_tokens": 2}},
            {
                "input_tokens": 0,
                "output_tokens": 4,
                "total_tokens": 9,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        ),
    ],
)
def test_usage_is_completed(usage: dict[str, Any] | None, expected: dict[str, Any] | None) -> None:
    assert build_response(replace(LINK, usage=usage), ())["usage"] == expected


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        (None, None, None),
        ({}, None, None),
        ({"input_tokens": 1}, None, {"input_tokens": 1}),
        (None, {"input_tokens": 1}, {"input_tokens": 1}),
        ({"input_tokens": 1, "a": 5}, {"input_tokens": 2, "b": 7}, {"input_tokens": 3, "a": 5, "b": 7}),
        ({"input_tokens": None}, {"input_tokens": 2}, {"input_tokens": 2}),
        ({"input_tokens": 2}, {"input_tokens": None}, {"input_tokens": 2}),
        ({"cost": 0.5}, {"cost": 0.25}, {"cost": 0.75}),
        ({"details": {"a": 1}}, {"details": {"a": 2, "b": 3}}, {"details": {"a": 3, "b": 3}}),
        ({"details": {"a": 1}}, {"details": None}, {"details": {"a": 1}}),
        ({"tier": "flex"}, {"tier": "auto"}, {"tier": "flex"}),
        ({"cached": True}, {"cached": True}, {"cached": True}),
        ({"n": 1}, {"n": "x"}, {"n": 1}),
        ({"n": "x"}, {"n": 1}, {"n": "x"}),
        ({"n": 1}, {"n": {"a": 1}}, {"n": 1}),
    ],
)
def test_the_usage_of_two_requests_is_added_where_both_are_numbers(
    first: dict[str, Any] | None, second: dict[str, Any] | None, total: dict[str, Any] | None
) -> None:
    assert add_usage(first, second) == total


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [(None, (0, 0, 0)), ({"input_tokens": 2, "output_tokens": 1}, (2, 1, 3))],
)
def test_a_compaction_shows_its_items_and_usage(usage: dict[str, Any] | None, tokens: tuple[int, int, int]) -> None:
    assert build_compaction_resource("resp_1", 100.9, (MESSAGE,), usage) == {
        "id": "resp_1",
        "object": "response.compaction",
        "created_at": 100,
        "output": [MESSAGE],
        "usage": {
            "input_tokens": tokens[0],
            "output_tokens": tokens[1],
            "total_tokens": tokens[2],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


# -- events ---------------------------------------------------------------------------------------


def test_the_first_event_lists_the_fields_that_the_model_was_not_sent() -> None:
    assert build_created_event(LINK) == {"type": "response.created", "response": build_response(LINK, ())}
    link = replace(LINK, parameters={"seed": 1, "user": "u", "ignored": ["seed", "user"]})
    event = build_created_event(link)
    assert event["ignored"] == ["seed", "user"]
    assert "user" not in event["response"]


@pytest.mark.parametrize(
    ("status", "error", "kind", "extra_fields"),
    [
        ("completed", None, "response.completed", {}),
        ("incomplete", {"code": "max_output_tokens", "message": "cut"}, "response.incomplete", {}),
        ("failed", {"code": "server_error", "message": "no"}, "response.failed", {}),
        ("cancelled", {"code": "cancelled", "message": "stopped"}, "response.incomplete", {}),
        (
            "completed",
            {"code": "text_differs", "message": "x", "streamed_text_differs": True},
            "response.completed",
            {"streamed_text_differs": True},
        ),
        (
            "incomplete",
            {"code": "max_output_tokens", "message": "cut", "limit": "limits.events"},
            "response.incomplete",
            {"limit": {"name": "limits.events", "message": "cut"}},
        ),
    ],
)
def test_the_last_event_has_the_type_of_the_status_and_the_reason_beside_it(
    status: Any, error: dict[str, Any] | None, kind: str, extra_fields: dict[str, Any]
) -> None:
    link = replace(LINK, status=status, error=error)
    assert build_terminal_event(link, [MESSAGE]) == {
        "type": kind,
        "response": build_response(link, [MESSAGE]),
        **extra_fields,
    }


# -- results --------------------------------------------------------------------------------------

USAGE = {"input_tokens": 1, "output_tokens": 2}
BODY = {"output": [MESSAGE], "usage": USAGE}
OUTPUT_LIMIT_MESSAGE = "The response is incomplete: it reached its limit of output tokens."


@pytest.mark.parametrize(
    ("kind", "body", "result"),
    [
        ("completed", BODY, TurnResult("completed", (MESSAGE,), USAGE)),
        ("completed", {"output": None}, TurnResult("completed")),
        (
            "incomplete",
            BODY,
            TurnResult("incomplete", (MESSAGE,), USAGE, {"code": "max_output_tokens", "message": OUTPUT_LIMIT_MESSAGE}),
        ),
        (
            "incomplete",
            {"incomplete_details": {"reason": "max_output_tokens"}},
            TurnResult("incomplete", error={"code": "max_output_tokens", "message": OUTPUT_LIMIT_MESSAGE}),
        ),
        (
            "incomplete",
            {"incomplete_details": {"reason": "content_filter"}},
            TurnResult(
                "incomplete",
                error={
                    "code": "content_filter",
                    "message": "The response is incomplete: a content filter stopped it.",
                },
            ),
        ),
        (
            "incomplete",
            {"incomplete_details": {"reason": "other"}},
            TurnResult("incomplete", error={"code": "other", "message": "The response is incomplete."}),
        ),
        (
            "incomplete",
            {**BODY, "error": {"code": "max_output_tokens", "message": "cut", "limit": "limits.events"}},
            TurnResult(
                "incomplete",
                (MESSAGE,),
                USAGE,
                {"code": "max_output_tokens", "message": "cut", "limit": "limits.events"},
            ),
        ),
        (
            "failed",
            BODY,
            TurnResult("failed", (MESSAGE,), USAGE, {"code": "server_error", "message": "The model failed."}),
        ),
        (
            "failed",
            {"error": {"code": "invalid_prompt"}},
            TurnResult("failed", error={"code": "invalid_prompt", "message": "The model failed."}),
        ),
    ],
)
def test_the_last_event_of_a_model_is_the_result(kind: str, body: dict[str, Any], result: TurnResult) -> None:
    assert result_from_event({"type": f"response.{kind}", "response": body}) == result


def test_a_result_is_confirmed_if_the_response_ended_by_itself() -> None:
    confirmed = {status: TurnResult(status).is_confirmed for status in ("completed", "incomplete", "failed")}
    assert confirmed == {"completed": True, "incomplete": True, "failed": False}
    cancelled = TurnResult("cancelled")
    assert (cancelled.is_confirmed, cancelled.is_appended, replace(cancelled, is_sent=True).is_appended) == (
        False,
        False,
        True,
    )


def test_a_status_other_than_completed_has_its_reason() -> None:
    cancelled = {"code": "cancelled", "message": "The response was cancelled."}
    assert response.cancelled_result([CALL]) == TurnResult("cancelled", (CALL,), error=cancelled)
    assert response.disconnected_result([MESSAGE, CALL]) == TurnResult(
        "cancelled", (MESSAGE, {**CALL, "status": "incomplete"}), error=cancelled, is_sent=True
    )
    assert response.not_stored_result([MESSAGE]) == TurnResult(
        "failed",
        (MESSAGE,),
        error={"code": "server_error", "message": "The server could not store this response."},
    )
    assert response.abandoned_result([MESSAGE]) == TurnResult(
        "failed", (MESSAGE,), error={"code": "server_error", "message": "The server that ran this response stopped."}
    )


def test_an_error_ends_a_response_as_failed_with_its_finished_items() -> None:
    assert response.build_failed_event(StreamBroken("it broke"), (MESSAGE,)) == {
        "type": "response.failed",
        "response": {"output": [MESSAGE], "error": {"code": "stream_broken", "message": "it broke"}},
    }


@pytest.mark.parametrize(
    ("limit", "kind", "code"),
    [("response_s", "failed", "server_error"), ("response_events", "incomplete", "max_output_tokens")],
)
def test_a_time_limit_fails_a_response_and_any_other_limit_truncates_it(limit: str, kind: str, code: str) -> None:
    error = LimitReached(limit, 5)
    assert response.build_limit_event(error, (MESSAGE,)) == {
        "type": f"response.{kind}",
        "response": {
            "output": [MESSAGE],
            "error": {"code": code, "message": error.message, "limit": f"limits.{limit}"},
        },
    }


def test_a_text_that_differs_from_the_streamed_text_is_noted_in_a_result_that_counts() -> None:
    completed = response.with_text_differs_error(TurnResult("completed", (MESSAGE,)))
    assert completed.error == {
        "code": "text_differs",
        "message": "the text that was streamed differs from the final text, which was kept",
        "streamed_text_differs": True,
    }
    incomplete = TurnResult("incomplete", error={"code": "max_output_tokens", "message": OUTPUT_LIMIT_MESSAGE})
    assert response.with_text_differs_error(incomplete).error == {
        **(incomplete.error or {}),
        "streamed_text_differs": True,
    }
    failed = TurnResult("failed", error={"code": "server_error", "message": "no"})
    assert response.with_text_differs_error(failed) is failed


def test_a_link_gets_the_end_of_its_response() -> None:
    path = Path(ROOT).append([{"role": "user", "content": "a"}, MESSAGE])
    result = TurnResult("incomplete", (MESSAGE,), USAGE, {"code": "max_output_tokens", "message": OUTPUT_LIMIT_MESSAGE})
    finished = finish_turn_link(replace(LINK, status="in_progress", duration_s=None), path, result, 7.5)
    assert (finished.head, finished.status, finished.duration_s) == (path.head, "incomplete", 7.5)
    assert (finished.usage, finished.error) == (USAGE, result.error)
