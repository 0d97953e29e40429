"""A value for each field of a request, other than its default. A new field gets one here."""

from collections.abc import Mapping

from convo.history.items import Json, user_message

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}

FIELD_VALUES: Mapping[str, Json] = {
    "access_programs": {"cyber": "standard"},
    "background": True,
    "background_options": {"completion_window": "soonest", "continuation_id": "c"},
    "chat_template_kwargs": {"enable_thinking": False},
    "client_metadata": {"a": "b"},
    "context_management": [{"type": "compaction", "compact_threshold": 1000}],
    "conversation": {"id": "conv_1"},
    "frequency_penalty": 0.5,
    "image": {"context_compression": "enabled"},
    "include": ["message.output_text.logprobs"],
    "input": [user_message("a")],
    "instructions": "Be brief.",
    "max_output_tokens": 2000,
    "max_tool_calls": 3,
    "metadata": {"a": "b"},
    "model": "gpt-5",
    "moderation": {"model": "m"},
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "previous_response_id": "resp_1",
    "prompt": {"id": "pmpt_1"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "low"},
    "safety_identifier": "s",
    "seed": 7,
    "service_tier": "priority",
    "stop": ["END"],
    "store": False,
    "stream": False,
    "stream_options": {"include_obfuscation": False},
    "temperature": 0.5,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "tool_choice": "required",
    "tools": [TOOL],
    "top_k": 40,
    "top_logprobs": 2,
    "top_p": 0.5,
    "truncation": "auto",
    "user": "u",
}
