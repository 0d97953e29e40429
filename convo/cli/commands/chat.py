"""`convo chat`: its arguments, options and help."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from convo.cli.app import App, OptionalText, OptionalTexts, flag_option, get_root_options, value_option
from convo.cli.input import join_message_texts, read_message
from convo.cli.run_options import STRICT_PREFIX_HELP, RunFlags
from convo.config.request_settings import (
    FIELD_BY_SETTING,
    LIST_PARAMETERS,
    MAX_PARAMETER_LEVELS,
    MAX_TEMPERATURE,
    OWN_OPTIONS,
    PARAMETER_KEY,
    check_list_parameter,
    count_levels,
    override_fields,
)
from convo.config.values import InvalidValue
from convo.errors import InvalidUsage
from convo.history.items import Json
from convo.history.records import Strategy
from convo.terminal.prompt import PICK_HINT, can_draw_prompt

if TYPE_CHECKING:
    from convo.config.templates import Template

app = App()

EXAMPLES = """
Examples:
  convo chat                                  chat interactively; saved on this machine
  convo chat "why is the sky blue?"           ask one question
  git diff | convo chat "review this"         ask about piped input
  convo chat --chain "hello"                  let the Responses API store the conversation
  convo chat --from resp_... "and then?"      continue from any response
  convo chat --replay --from talk.json "hi"   keep the conversation in a file that you can edit
  convo chat -c                               continue the most recent session
  convo chat --from monads                    continue another session (convo sessions lists them)
  convo chat --fork monads@2 "or rather:"     a new session with the first two turns of another one
  convo chat -a notes.md "summarize this"     attach a file
  convo chat -m local "hello"                 use the built-in model: no key, no network
  convo chat --pick                           choose the conversation to continue
  convo chat --agent support.py:triage "hi"   run agents with their tools and handoffs
  git diff | convo chat -t review             use the template review
  convo chat --tool desk.py:look_up "A1?"     let the model call a Python function
  convo chat --mcp https://host/mcp "A1?"     let the model call the tools of an MCP server
"""

CONVERSATION_PANEL = "Conversation"

PromptArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PROMPT]...",
        help="Message to send; omit it to chat interactively. Piped input is appended, or replaces the argument -.",
    ),
]


@dataclass(frozen=True)
class StrategyFlags:
    """The owner of the state, and the conversation to continue."""

    replay: bool = flag_option("--replay", "Keep the state in a JSON file that you can edit.")
    session: bool = flag_option("--session", "Keep the state in the local store (default).")
    conversation: bool = flag_option("--conversation", "Keep the state in the endpoint's Conversations API.")
    chain: bool = flag_option("--chain", "Keep the state in the endpoint's Responses API.")
    handle: OptionalText = value_option(
        "--from", "HANDLE", "Continue from a file, a session, conv_..., resp_... or @last.", panel=CONVERSATION_PANEL
    )
    continue_last: bool = flag_option(
        "-c --continue", "Continue the chat that was used last.", panel=CONVERSATION_PANEL
    )
    pick: bool = flag_option("--pick", "Choose the conversation to continue from a list.", panel=CONVERSATION_PANEL)
    fork: OptionalText = value_option(
        "--fork",
        "HANDLE[@N]",
        "Start a new session with the history of HANDLE, up to its turn N.",
        panel=CONVERSATION_PANEL,
    )
    name: OptionalText = value_option("-n --name", "NAME", "Name of the new session.", panel=CONVERSATION_PANEL)
    store_remotely: bool = flag_option(
        "--store",
        "Also store the responses at the endpoint; unlike with --chain, requests send the whole history.",
        panel=CONVERSATION_PANEL,
    )

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The requested strategies; a conversation has one."""
        return tuple(strategy for strategy in Strategy if getattr(self, strategy))

    def check_pick(self, output: "ChatOutputFlags") -> None:
        """Raise InvalidUsage if --pick is used with an option that names the conversation, or without a terminal."""
        if not self.pick:
            return
        others = {
            "--from": self.handle,
            "-c": self.continue_last,
            "--fork": self.fork,
            "-n": self.name,
            "--json": output.as_json,
            "--jsonl": output.as_jsonl,
            "--plain": output.plain,
        }
        other = next((name for name, value in others.items() if value), None)
        if other:
            raise InvalidUsage(f"--pick cannot be used with {other}", hint="use one of them")
        if not can_draw_prompt("") or not sys.stdin.isatty():
            raise InvalidUsage("--pick needs a terminal", hint=PICK_HINT)


@dataclass(frozen=True)
class RequestFlags:
    """Fields of every request of the chat."""

    model: OptionalText = value_option("-m --model", "MODEL", "Model to use, as provider/model.")
    instructions: OptionalText = value_option("-s --system", "TEXT", "Instructions for the model, in every turn.")
    attachments: OptionalTexts = value_option("-a --attach", "FILE", "File to attach; can be repeated.")
    template: OptionalText = value_option("-t --template", "NAME", "Template to use; convo templates lists them.")
    variables: OptionalTexts = value_option(
        "--var", "KEY=VALUE", "Value of a variable of the template; can be repeated."
    )
    schema_file: OptionalText = value_option("--schema", "FILE", "JSON Schema that the response must match.")
    temperature: float | None = value_option("--temperature", "T", "Sampling temperature, 0 to 2.")
    top_p: float | None = value_option(
        "--top-p", "P", "Nucleus sampling: total probability of the tokens considered, 0 to 1."
    )
    max_output_tokens: int | None = value_option(
        "--max-output-tokens", "N", "Maximum number of output tokens per response."
    )
    reasoning_effort: OptionalText = value_option(
        "--reasoning-effort",
        "LEVEL",
        "Reasoning effort: none, minimal, low, medium, high, or another of the model.",
    )
    verbosity: OptionalText = value_option("--verbosity", "LEVEL", "Length of the text: low, medium or high.")
    other_parameters: OptionalTexts = value_option(
        "--param", "KEY=VALUE", "Set another field of the request; VALUE is JSON or text; can be repeated."
    )
    strict_prefix: bool = flag_option("--strict-prefix", STRICT_PREFIX_HELP)
    keep_prefix: bool = flag_option(
        "--keep-prefix", "Append changed settings at the end, so that the prefix stays unchanged."
    )

    def parameters(self) -> dict[str, Json]:
        """Return the fields of every request. Raises InvalidUsage for a number out of range, or a field given twice."""
        if self.temperature is not None and not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise InvalidUsage(f"--temperature must be between 0 and {MAX_TEMPERATURE}", hint="--temperature 0.7")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise InvalidUsage("--top-p must be between 0 and 1", hint="--top-p 0.9")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise InvalidUsage("--max-output-tokens must be at least 1", hint="--max-output-tokens 1000")
        fields: dict[str, Json] = {}
        for name, field in FIELD_BY_SETTING.items():
            value: Json = getattr(self, name)
            if value is not None:
                set_parameter(fields, field, value)
        for argument in self.other_parameters or ():
            set_parameter(fields, *parse_parameter(argument))
        text = fields.get("text", {})
        if self.schema_file is not None and (not isinstance(text, dict) or "format" in text):
            raise InvalidUsage("--schema and --param text.format are both given", hint="use one of them")
        for name, value in fields.items():
            try:
                check_list_parameter(name, value)
            except InvalidValue as fault:
                raise InvalidUsage(
                    f"--param {name} {fault}", hint=f"--param '{name}={LIST_PARAMETERS[name][1]}'"
                ) from fault
        return fields


def format_argument(argument: str) -> str:
    """Format an argument for an error: in quotes if it is empty or has a character that is not printable."""
    return argument if argument and argument.isprintable() else repr(argument)


def parse_parameter(argument: str) -> tuple[str, Json]:
    """Parse the KEY=VALUE of --param; a value that is not JSON is text. Raises InvalidUsage."""
    from convo.history.canonical import STRICT_JSON_DECODER

    key, separator, text = argument.partition("=")
    if not separator or not PARAMETER_KEY.fullmatch(key):
        raise InvalidUsage(f"--param {format_argument(argument)} is not KEY=VALUE", hint="--param service_tier=flex")
    name = key.partition(".")[0]
    if name in OWN_OPTIONS:
        raise InvalidUsage(f"--param cannot set {name}", hint=OWN_OPTIONS[name])
    try:
        value: Json = STRICT_JSON_DECODER.decode(text)
    except (ValueError, RecursionError):
        value = text
    if key.count(".") + count_levels(value) > MAX_PARAMETER_LEVELS:
        raise InvalidUsage(f"--param {name} is nested too deeply", hint=f"use at most {MAX_PARAMETER_LEVELS} levels")
    return key, value


def set_parameter(fields: dict[str, Json], key: str, value: Json) -> None:
    """Set a field; "reasoning.effort" is the member `effort` of `reasoning`. Raises InvalidUsage if it is set."""
    *path, last = key.split(".")
    for name in path:
        fields = fields.setdefault(name, {})
        if not isinstance(fields, dict):
            raise InvalidUsage(f"{key} and {name} are both given", hint="give each field once")
    if last in fields:
        raise InvalidUsage(f"{key} is given twice", hint="give each field once")
    fields[last] = value


@dataclass(frozen=True)
class ChatOutputFlags:
    """The output and its format."""

    quiet: bool = flag_option("-q --quiet", "Print only the response, without token counts and notices.")
    as_json: bool = flag_option("--json", "Print one JSON object about the turn.")
    as_jsonl: bool = flag_option("--jsonl", "Print the events of the turn as JSON, one per line.")
    plain: bool = flag_option("--plain", "Print text without Markdown formatting and without selection lists.")
    no_stream: bool = flag_option("--no-stream", "Wait for the complete response.")

    def validate(self) -> None:
        """Raise InvalidUsage for more than one output format."""
        if self.as_json and self.as_jsonl:
            raise InvalidUsage("--json and --jsonl cannot be used together", hint="use one of them")


def load_chat_template(request: RequestFlags, run: RunFlags) -> "Template":
    """Load the template of -t.

    Raises the errors of `load_template`, and InvalidUsage for options that do not fit the template.
    """
    from convo.config.paths import AppPaths
    from convo.config.templates import load_template

    assert request.template is not None
    template = load_template(AppPaths.from_environ(os.environ).templates, request.template)
    if template.instructions is not None and run.source and run.source.agent:
        raise InvalidUsage(
            f"template {template.name!r} has instructions and cannot be used with --agent: an agent has its own",
            hint="leave one of them out",
        )
    if request.schema_file is not None and "format" in template.parameters.get("text", {}):
        raise InvalidUsage(
            f"--schema and text.format of template {template.name!r} are both given", hint="use one of them"
        )
    return template


def parse_variables(arguments: Sequence[str]) -> dict[str, str]:
    """Parse the values of --var. Raises InvalidUsage for one that is not KEY=VALUE, or is given twice."""
    values: dict[str, str] = {}
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if not separator or not name.isidentifier():
            raise InvalidUsage(f"--var {format_argument(argument)} is not KEY=VALUE", hint="--var language=French")
        if name in values:
            raise InvalidUsage(f"--var {name} is given twice", hint="give each variable once")
        values[name] = value
    return values


@app.command(epilog=EXAMPLES)
def chat_command(
    ctx: typer.Context,
    prompt: PromptArgument = None,
    *,
    strategy: Annotated[StrategyFlags, "Owner of the state (choose one)"],
    request: Annotated[RequestFlags, "Request"],
    run: Annotated[RunFlags, "Agent runs"],
    output: Annotated[ChatOutputFlags, "Output"],
) -> None:
    """Chat with a model. Choose where the conversation state lives."""
    from convo.cli.chat import note_mentioned_files, run_chat
    from convo.cli.context import ChatOptions, ChatOutput
    from convo.terminal.signals import run_until_terminated

    output.validate()
    strategy.check_pick(output)
    is_continued = bool(strategy.handle or strategy.continue_last or strategy.fork or strategy.pick)
    run.validate(instructions=request.instructions, schema_file=request.schema_file, is_continued=is_continued)
    files = (*(request.attachments or ()), request.schema_file, run.context, strategy.handle)
    parameters = request.parameters()
    template = load_chat_template(request, run) if request.template is not None else None
    if request.variables and template is None:
        raise InvalidUsage("--var sets a variable of a template and needs -t", hint="add -t NAME")
    has_prompt = template is not None and template.prompt is not None and not template.uses_input
    message = read_message(prompt or [], files, example='convo chat "..."', required=not has_prompt)
    model, instructions = request.model, request.instructions
    if template is not None:
        from convo.config.templates import expand_template

        expanded = expand_template(template, parse_variables(request.variables or ()), message)
        parameters = override_fields(template.parameters, parameters)
        model = template.model if model is None else model
        instructions = expanded.instructions if instructions is None else instructions
        if expanded.prompt is not None:
            message = expanded.prompt if template.uses_input else join_message_texts(expanded.prompt, message or "")
    options = ChatOptions(
        strategies=strategy.strategies,
        handle=strategy.handle,
        continue_last=strategy.continue_last,
        is_picked=strategy.pick,
        fork=strategy.fork,
        name=strategy.name,
        store_remotely=strategy.store_remotely,
        model=model,
        model_source=f"template {template.name!r}" if template and request.model is None else None,
        instructions=instructions,
        attachments=tuple(request.attachments or ()),
        schema_file=request.schema_file,
        parameters=parameters,
        strict_prefix=request.strict_prefix or None,
        keep_prefix=request.keep_prefix or None,
        prompt=message,
        config=get_root_options(ctx).config,
        run_flags=run,
    )
    out = ChatOutput(
        output.quiet, output.as_json, output.as_jsonl, is_streamed=not output.no_stream, is_plain=output.plain
    )
    note_mentioned_files(" ".join(prompt or ()), options.attachments, out)
    raise typer.Exit(asyncio.run(run_until_terminated(run_chat(options, out))))
