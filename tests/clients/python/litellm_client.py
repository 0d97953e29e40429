# /// script
# requires-python = ">=3.11"
# dependencies = ["litellm==1.110.2", "mcp==2.3.0"]
# ///
"""LiteLLM over the Responses API or chat completions: a loop of calls and outputs, the history in this process."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from workspace import BASE_URL, KEY, MODEL, PROMPT, TOOLS, report

litellm.telemetry = False
functions = {function.__name__: function for function in TOOLS}
schemas = [
    {
        "name": name,
        "description": function.__doc__,
        "parameters": {
            "type": "object",
            "properties": {
                parameter: {"type": "integer" if kind is int else "string"}
                for parameter, kind in function.__annotations__.items()
                if parameter != "return"
            },
            "required": [parameter for parameter in function.__annotations__ if parameter != "return"],
        },
    }
    for name, function in functions.items()
]
common = {"model": "openai/" + MODEL, "api_base": BASE_URL, "api_key": KEY, "max_retries": 0}


def run_responses() -> str:
    history = [{"role": "user", "content": PROMPT}]
    tools = {"tools": [{"type": "function", **schema} for schema in schemas]} if schemas else {}
    while True:
        response = litellm.responses(input=history, store=False, **tools, **common)
        items = [item.model_dump(exclude_none=True) for item in response.output]
        history += items
        calls = [item for item in items if item["type"] == "function_call"]
        if not calls:
            return "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
        for call in calls:
            output = functions[call["name"]](**json.loads(call["arguments"]))
            history.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})


def run_chat_completions() -> str:
    messages = [{"role": "user", "content": PROMPT}]
    tools = {"tools": [{"type": "function", "function": schema} for schema in schemas]} if schemas else {}
    while True:
        message = litellm.completion(messages=messages, **tools, **common).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            output = functions[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


report(run_responses() if os.environ["API"] == "responses" else run_chat_completions())
