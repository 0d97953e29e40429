"""A request as code: a curl command, or a program for the openai package in Python or JavaScript.

The code is ASCII, so that no character of a text is hidden or special to a terminal, a shell or an editor. A key is
never part of it: the code reads the key from a variable of the environment.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from shlex import quote
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from convo.history.items import Json
from convo.history.request_body import SentBody

SERVER_KEY_VARIABLE = "CONVO_KEY"
"""The environment variable of the key in code for convo's own server, if that needs a key."""

UNKNOWN_KEY_VARIABLE = "API_KEY"
"""The variable of a key for a server that is not in the settings."""

HEREDOC_END = "END_OF_REQUEST"
"""JSON contains no such line."""

ANTHROPIC_HEADERS = {"anthropic-version": "2023-06-01"}
"""The version of Anthropic's API if the recorded request named none."""

PLACEHOLDER_KEY = "unused"
"""The key for a server without keys: the openai package requires one."""

MAX_EXACT_INTEGER = 2**53
"""The largest integer below which JavaScript has all integers."""

PYTHON_PARAMETERS = frozenset(
    {
        *("background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens"),
        *("max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt"),
        *("prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store"),
        *(
            "stream_options",
            "temperature",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
            "user",
        ),
    }
)
"""Parameters of `responses.create` in the Python package; other fields are passed as `extra_body`."""


class _Sdk(NamedTuple):
    """The packages for one protocol.

    parameters:  of `create` in the Python package; other fields are passed as `extra_body`
    python_text, javascript_text:  the path from a response to its text
    """

    client: str
    python_package: str
    javascript_package: str
    resource: str
    parameters: frozenset[str]
    python_text: str
    javascript_text: str


CHAT_PARAMETERS = frozenset(
    {
        *(
            "audio",
            "frequency_penalty",
            "function_call",
            "functions",
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
        ),
        *("max_tokens", "messages", "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction"),
        *("presence_penalty", "prompt_cache_key", "reasoning_effort", "response_format", "safety_identifier", "seed"),
        *("service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools"),
        *("top_logprobs", "top_p", "user", "verbosity", "web_search_options"),
    }
)

MESSAGES_PARAMETERS = frozenset(
    {
        *("max_tokens", "messages", "metadata", "model", "service_tier", "stop_sequences", "stream", "system"),
        *("temperature", "thinking", "tool_choice", "tools", "top_k", "top_p"),
    }
)

_SDKS: Mapping[str, _Sdk] = {
    "responses": _Sdk(
        "OpenAI", "openai", "openai", "responses", PYTHON_PARAMETERS | {"stream"}, ".output_text", ".output_text"
    ),
    "chat_completions": _Sdk(
        "OpenAI", "openai", "openai", "chat.completions", CHAT_PARAMETERS, ".choices[0].message.content",
        ".choices[0].message.content",
    ),
    "messages": _Sdk(
        "Anthropic", "anthropic", "@anthropic-ai/sdk", "messages", MESSAGES_PARAMETERS, ".content", ".content"
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """The server that code sends a request to.

    base_url:  of the API, with /v1
    key_env:   the variable that holds the key; None if no key is needed
    sent:      the recorded request that the code repeats, in its own protocol and with its own `stream`; None for a
               request to the Responses API
    """

    base_url: str
    key_env: str | None = None
    organisation: str | None = None
    project: str | None = None
    sent: SentBody | None = None


def build_curl_command(
    url: str, headers: Mapping[str, str], body: Mapping[str, Json], key_env: str | None, *, is_streamed: bool = True
) -> str:
    """Build a curl command for a POSIX shell. It streams the response, as a chat does.

    headers:      besides the content type; `{key}` is a placeholder for the key
    key_env:      the variable that holds the key; None if none is needed
    is_streamed:  set `stream` in the body; otherwise the body is sent as it is
    """
    all_headers = {"Content-Type": "application/json", **headers}
    header_options = [f"-H {_format_header(name, value, key_env)}" for name, value in all_headers.items()]
    body_text = json.dumps({**body, "stream": True} if is_streamed else dict(body), indent=2).replace("\x7f", "\\u007f")
    options = " \\\n  ".join([f"curl -sS -N {quote(url)}", *header_options, f"--data-binary @- <<'{HEREDOC_END}'"])
    return f"{options}\n{body_text}\n{HEREDOC_END}"


def _format_header(name: str, value: str, variable: str | None) -> str:
    """Quote one header for the shell; the key is read from its variable by the shell."""
    if "{key}" not in value:
        return quote(f"{name}: {value}")
    before, _, after = value.partition("{key}")
    return f'"{name}: {before}${{{variable}}}{after}"'


def _render_curl(target: CodeTarget, body: Mapping[str, Json]) -> str:
    sent = target.sent
    is_anthropic = sent is not None and sent.protocol == "messages"
    key_header = {"x-api-key": "{key}"} if is_anthropic else {"Authorization": "Bearer {key}"}
    account = {"OpenAI-Organization": target.organisation, "OpenAI-Project": target.project}
    headers = (key_header if target.key_env else {}) | {name: value for name, value in account.items() if value}
    if sent is not None:
        headers |= ANTHROPIC_HEADERS if is_anthropic else {}
        headers |= {name: value.replace("{key}", "") for name, value in sent.headers.items()}
        url = f"{target.base_url.rstrip('/')}{sent.path}"
        return build_curl_command(url, headers, body, target.key_env, is_streamed=False) + "\n"
    return build_curl_command(f"{target.base_url.rstrip('/')}/responses", headers, body, target.key_env) + "\n"


def _render_python(target: CodeTarget, body: Mapping[str, Json]) -> str:
    sdk = _SDKS[target.sent.protocol if target.sent else "responses"]
    known_parameters = sdk.parameters
    key = f"os.environ[{_quote_python(target.key_env)}]" if target.key_env else _quote_python(PLACEHOLDER_KEY)
    account = {"organization": target.organisation, "project": target.project}
    extra_body = {name: value for name, value in body.items() if name not in known_parameters}
    fields = {name: value for name, value in body.items() if name in known_parameters}
    options = {
        **({"extra_body": extra_body} if extra_body else {}),
        **_sent_options(target, "extra_headers", "extra_query"),
    }
    arguments = {**fields, **options}
    is_streamed = target.sent is not None and body.get("stream") is True
    return "\n".join(
        [
            *(["import os", ""] if target.key_env else []),
            f"from {sdk.python_package} import {sdk.client}",
            "",
            f"client = {sdk.client}(",
            f"    base_url={_quote_python(target.base_url)},",
            f"    api_key={key},",
            *(f"    {name}={_quote_python(value)}," for name, value in account.items() if value),
            ")",
            f"{'events' if is_streamed else 'response'} = client.{sdk.resource}.create(",
            *(f"    {name}={_format_literal(value, PYTHON, '    ')}," for name, value in arguments.items()),
            ")",
            *(["for event in events:", "    print(event)"] if is_streamed else [f"print(response{sdk.python_text})"]),
            "",
        ]
    )


def _sent_options(target: CodeTarget, headers_name: str, query_name: str) -> dict[str, Json]:
    """Return the headers and the query that select a version of the API."""
    if target.sent is None:
        return {}
    query = dict(parse_qsl(urlsplit(target.sent.path).query))
    headers = dict(target.sent.headers)
    return {**({headers_name: headers} if headers else {}), **({query_name: query} if query else {})}


def _render_javascript(target: CodeTarget, body: Mapping[str, Json]) -> str:
    key = f"process.env[{_quote_javascript(target.key_env)}]" if target.key_env else _quote_javascript(PLACEHOLDER_KEY)
    account = {"organization": target.organisation, "project": target.project}
    sdk = _SDKS[target.sent.protocol if target.sent else "responses"]
    options = _sent_options(target, "headers", "query")
    options_argument = f", {_format_literal(options, JAVASCRIPT, '')}" if options else ""
    is_streamed = target.sent is not None and body.get("stream") is True
    note = "// JavaScript rounds integers above 2 ** 53: the request has one. Send it with curl or Python."
    return "\n".join(
        [
            *([note] if any(abs(number) > MAX_EXACT_INTEGER for number in _iter_integers(dict(body))) else []),
            f'import {sdk.client} from "{sdk.javascript_package}";',
            "",
            f"const client = new {sdk.client}({{",
            f"  baseURL: {_quote_javascript(target.base_url)},",
            f"  apiKey: {key},",
            *(f"  {name}: {_quote_javascript(value)}," for name, value in account.items() if value),
            "});",
            f"const {'events' if is_streamed else 'response'} = await client.{sdk.resource}.create("
            f"{_format_literal(dict(body), JAVASCRIPT, '')}{options_argument});",
            *(
                ["for await (const event of events) console.log(event);"]
                if is_streamed
                else [f"console.log(response{sdk.javascript_text});"]
            ),
            "",
        ]
    )


def to_sent_target(target: CodeTarget, sent: SentBody | None) -> CodeTarget:
    """Return the target of a recorded request in its own protocol, from the target of its form in the Responses API.

    Anthropic's API has the version in the path, not in the base URL.
    """
    if sent is None:
        return target
    base_url = target.base_url.rstrip("/")
    is_versioned = sent.path.startswith("/v1/") and base_url.endswith("/v1")
    return replace(target, base_url=base_url.removesuffix("/v1") if is_versioned else base_url, sent=sent)


RENDERERS: Mapping[str, Callable[[CodeTarget, Mapping[str, Json]], str]] = {
    "curl": _render_curl,
    "python": _render_python,
    "javascript": _render_javascript,
}

CODE_LANGUAGES = tuple(RENDERERS)


def render_request_code(language: str, target: CodeTarget, body: Mapping[str, Json]) -> str:
    """Render code that sends exactly `body` to `target`; curl adds `"stream": true`.

    language:  one of CODE_LANGUAGES
    """
    return RENDERERS[language](target, body)


class _Syntax(NamedTuple):
    indent: str
    constants: Mapping[object, str]
    quote_text: Callable[[str], str]
    quote_name: Callable[[str], str]


def _quote_python(text: str) -> str:
    escapes = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[^\x20-\x7e]", lambda match: _escape_python(ord(match[0])), escapes)


def _escape_python(code_point: int) -> str:
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"


def _quote_javascript(text: str) -> str:
    # json.dumps leaves DEL as it is, which a terminal does not show.
    return json.dumps(text).replace("\x7f", "\\u007f")


def _quote_javascript_name(name: str) -> str:
    """Quote the name of a member; `__proto__` as it is would set the prototype instead."""
    return f"[{_quote_javascript(name)}]" if name == "__proto__" else _quote_javascript(name)


PYTHON = _Syntax("    ", {True: "True", False: "False", None: "None"}, _quote_python, _quote_python)
JAVASCRIPT = _Syntax("  ", {True: "true", False: "false", None: "null"}, _quote_javascript, _quote_javascript_name)


def _format_literal(value: Json, syntax: _Syntax, indent: str) -> str:
    """Format a JSON value as a literal; all lines but the first begin with `indent`."""
    inner = indent + syntax.indent
    if isinstance(value, Mapping):
        members = [
            f"{inner}{syntax.quote_name(name)}: {_format_literal(member, syntax, inner)},\n"
            for name, member in value.items()
        ]
        return f"{{\n{''.join(members)}{indent}}}" if members else "{}"
    if isinstance(value, list | tuple):
        entries = [f"{inner}{_format_literal(entry, syntax, inner)},\n" for entry in value]
        return f"[\n{''.join(entries)}{indent}]" if entries else "[]"
    if isinstance(value, str):
        return syntax.quote_text(value)
    if value is None or isinstance(value, bool):
        return syntax.constants[value]
    return json.dumps(value)


def _iter_integers(value: Json) -> Iterator[int]:
    """Yield all integers in a JSON value."""
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _iter_integers(member)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _iter_integers(entry)
    elif isinstance(value, int):
        yield value
