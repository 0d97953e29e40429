"""The response resource: every field is present for every request."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from openai.types.responses import ResponseError
from openai.types.responses.response import Response as TypedResponse

from convo.history.records import Link, LinkStatus, Strategy
from convo.history.tree import root_key
from convo.responses_api.response import RESPONSE_ERROR_CODES, build_response

NOTHING, NUMBER = type(None), (int, float)

FIELDS: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "object": (str,),
    "created_at": (int,),
    "completed_at": (int, NOTHING),
    "status": (str,),
    "incomplete_details": (dict, NOTHING),
    "model": (str,),
    "previous_response_id": (str, NOTHING),
    "instructions": (str, NOTHING),
    "output": (list,),
    "error": (dict, NOTHING),
    "tools": (list,),
    "tool_choice": (str, dict),
    "truncation": (str,),
    "parallel_tool_calls": (bool,),
    "text": (dict,),
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": (int,),
    "temperature": NUMBER,
    "reasoning": (dict, NOTHING),
    "usage": (dict, NOTHING),
    "max_output_tokens": (int, NOTHING),
    "max_tool_calls": (int, NOTHING),
    "store": (bool,),
    "background": (bool,),
    "service_tier": (str,),
    "metadata": (dict,),
    "safety_identifier": (str, NOTHING),
    "prompt_cache_key": (str, NOTHING),
}
"""The required fields of ResponseResource in the Open Responses specification of 2026-04-24, and their types."""

ROOT = root_key("local")
LINK = Link("resp_1", ROOT, ROOT, 1, "local/m", Strategy.CHAIN, "completed", 1_700_000_000.7, duration_s=2.5)


STATUSES: tuple[LinkStatus, ...] = get_args(LinkStatus)
PARAMETERS: dict[str, Any] = {"background": True, "instructions": "Be brief.", "max_output_tokens": 16, "top_p": 1}


@pytest.mark.parametrize("parameters", [{}, PARAMETERS], ids=["no parameters", "many parameters"])
@pytest.mark.parametrize("status", STATUSES)
def test_every_field_has_its_type_for_every_status(status: LinkStatus, parameters: dict[str, Any]) -> None:
    error = {"code": "max_output_tokens", "message": "too long"}
    response = build_response(replace(LINK, status=status, error=error, usage={}, parameters=parameters), ())
    assert [name for name, types in FIELDS.items() if not isinstance(response[name], types)] == []
    assert response["status"] == status


def test_every_field_of_a_response_is_known_to_the_package() -> None:
    assert set(build_response(LINK, ())) - set(TypedResponse.model_fields) == {
        "presence_penalty",
        "frequency_penalty",
        "store",
    }


def test_a_cancelled_response_has_neither_an_error_nor_a_reason() -> None:
    error = {"code": "max_output_tokens", "message": "too long"}
    cancelled = build_response(replace(LINK, status="cancelled", error=error), ())
    assert (cancelled["error"], cancelled["incomplete_details"]) == (None, None)


def test_a_failed_response_has_a_code_that_typed_clients_accept() -> None:
    known = get_args(ResponseError.model_fields["code"].annotation)
    assert set(known) <= RESPONSE_ERROR_CODES
    for code in known:
        failed = build_response(replace(LINK, status="failed", error={"code": code, "message": "no"}), ())
        assert failed["error"] == {"code": code, "message": "no"}
    failed = build_response(replace(LINK, status="failed", error={"code": "overloaded", "message": "no"}), ())
    assert failed["error"] == {"code": "server_error", "message": "no"}
