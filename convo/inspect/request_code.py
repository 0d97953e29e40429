"""A request as code: a curl command, or a program for the openai package in Python or JavaScript.

The code is ASCII, so that no character of a text is hidden or special to a terminal, a shell or an editor. A key is
never part of it: the code reads the key from a variable of the environment.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import NamedTuple

from convo.history.items import Json

SERVER_KEY_VARIABLE = "CONVO_KEY"
"""The environment variable of the key in code for convo's own server, if that needs a key."""

HEREDOC_END = "END_OF_REQUEST"
"""JSON contains no such line."""

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


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """The server that code sends a request to.

    base_url:  of the API, with /v1
    key_env:   the variable that holds the key; None if no key is needed
    """

    base_url: str
    key_env: str | None = None
    organisation: str | None = None
    project: str | None = None


def build_curl_command(url: str, headers: Mapping[str, str], body: Mapping[str, Json], key_env: str | None) -> str:
    """Build a curl command for a POSIX shell. It streams the response, as a chat does.

    headers:  besides the content type; `{key}` is a placeholder for the key
    key_env:  the variable that holds the key; None if none is needed
    """
    all_headers = {"Content-Type": "application/json", **headers}
    header_options = [f"-H {_format_header(name, value, key_env)}" for name, value in all_headers.items()]
    body_text = json.dumps({**body, "stream": True}, indent=2).replace("\x7f", "\\u007f")
    options = " \\\n  ".join([f"curl -sS -N {quote(url)}", *header_options, f"--data-binary @- <<'{HEREDOC_END}'"])
    return f"{options}\n{body_text}\n{HEREDOC_END}"


def _format_header(name: str, value: str, variable: str | None) -> str:
    """Quote one header for the shell; the key is read from its variable by the shell."""
    if "{key}" not in value:
        return quote(f"{name}: {value}")
    before, _, after = value.partition("{key}")
    return f'"{name}: {before}${{{variable}}}{after}"'


def _render_curl(target: CodeTarget, body: Mapping[str, Json]) -> str:
    key_headers = {"Authorization": "Bearer {key}"} if target.key_env else {}
    account = {"OpenAI-Organization": target.organisation, "OpenAI-Project": target.project}
    headers = key_headers | {name: value for name, value in account.items() if value}
    return build_curl_command(f"{target.base_url.rstrip('/')}/responses", headers, body, target.key_env) + "\n"


def _render_python(target: CodeTarget, body: Mapping[str, Json]) -> str:
    key = f"os.environ[{_quote_python(target.key_env)}]" if target.key_env else _quote_python(PLACEHOLDER_KEY)
    account = {"organization": target.organisation, "project": target.project}
    extra_body = {name: value for name, value in body.items() if name not in PYTHON_PARAMETERS}
    fields = {name: value for name, value in body.items() if name in PYTHON_PARAMETERS}
    arguments = {**fields, **({"extra_body": extra_body} if extra_body else {})}
    return "\n".join(
        [
            *(["import os", ""] if target.key_env else []),
            "from openai import OpenAI",
            "",
            "client = OpenAI(",
            f"    base_url={_quote_python(target.base_url)},",
            f"    api_key={key},",
            *(f"    {name}={_quote_python(value)}," for name, value in account.items() if value),
            ")",
            "response = client.responses.create(",
            *(f"    {name}={_format_literal(value, PYTHON, '    ')}," for name, value in arguments.items()),
            ")",
            "print(response.output_text)",
            "",
        ]
    )


def _render_javascript(target: CodeTarget, body: Mapping[str, Json]) -> str:
    key = f"process.env[{_quote_javascript(target.key_env)}]" if target.key_env else _quote_javascript(PLACEHOLDER_KEY)
    account = {"organization": target.organisation, "project": target.project}
    note = "// JavaScript rounds integers above 2 ** 53: the request has one. Send it with curl or Python."
    return "\n".join(
        [
            *([note] if any(abs(number) > MAX_EXACT_INTEGER for number in _iter_integers(dict(body))) else []),
            'import OpenAI from "openai";',
            "",
            "const client = new OpenAI({",
            f"  baseURL: {_quote_javascript(target.base_url)},",
            f"  apiKey: {key},",
            *(f"  {name}: {_quote_javascript(value)}," for name, value in account.items() if value),
            "});",
            f"const response = await client.responses.create({_format_literal(dict(body), JAVASCRIPT, '')});",
            "console.log(response.output_text);",
            "",
        ]
    )


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
