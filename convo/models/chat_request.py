"""An ask as the body of a chat-completions request.

What chat completions calls otherwise is renamed, what belongs to whoever keeps the response is
left to it, and what the server could not honour is refused by name: a parameter that is dropped
in silence is a wrong answer that nobody notices.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from convo.config.providers import EXTRA_FIELDS
from convo.errors import Unsupported
from convo.items import Json, kind
from convo.models.chat_messages import messages
from convo.models.contract import Ask
from convo.models.ignored import OPENAI_CHAT_FIELDS, ignored_in_items, ignored_parameters
from convo.models.sealed import NOBODY, Maker, is_own

SAME_NAME = ("temperature", "top_p", "presence_penalty", "frequency_penalty")

NOT_OURS = frozenset(
    {
        # the response's own, kept and answered by whoever owns it
        "store", "stream", "stream_options", "background", "metadata",
        "previous_response_id", "conversation", "context_management",
        # a bound on tools that are refused anyway, and reported by `ignored`
        "max_tool_calls",
    }
)  # fmt: skip

MEANS_NOTHING: Mapping[str, Json] = {"truncation": "disabled"}
"""Values that ask for what happens anyway."""

OPENAIS = ("api.openai.com", ".openai.azure.com", ".services.ai.azure.com")

LOGPROBS = "message.output_text.logprobs"
SEALED_REASONING = "reasoning.encrypted_content"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one server says otherwise than all others.

    limit:       the field that bounds the answer
    thinks:      it takes `thinking`, and wants its thoughts back in a turn with calls
    reasons:     it may send reasoning, which becomes the summary where one is asked for
    extra:       the extra fields that it is sent, see `convo.models.ignored`
    """

    limit: str = "max_tokens"
    thinks: bool = False
    reasons: bool = True
    extra: frozenset[str] = frozenset()


def dialect(provider: str, base_url: str, extra_fields: Collection[str] = ()) -> Dialect:
    """The dialect of a server, by its name and address.

    OpenAI's reasoning models refuse `max_tokens`; the other servers all know it and some know
    nothing else.
    """
    host = urlsplit(base_url).hostname or ""
    return Dialect(
        limit="max_completion_tokens" if is_openais(base_url) else "max_tokens",
        thinks=provider == "deepseek" or host.endswith("deepseek.com"),
        extra=frozenset(extra_fields) | (OPENAI_CHAT_FIELDS if is_openais(base_url) else frozenset()),
    )


def is_openais(base_url: str) -> bool:
    """Whether a server is OpenAI's own or Azure's."""
    return (urlsplit(base_url).hostname or "").endswith(OPENAIS)


def ignored(ask: Ask, spoken: Dialect = Dialect(), by: Maker = NOBODY) -> tuple[str, ...]:
    """What `request` leaves out of `ask`, by the names of `convo.models.ignored`."""
    honoured = ("effort", "summary", "generate_summary") if spoken.reasons else ("effort",)
    names = [*ignored_parameters(ask.parameters, known=spoken.extra, reasoning=honoured)]
    if not spoken.thinks and SEALED_REASONING in (ask.parameters.get("include") or ()):
        names.append(f"include.{SEALED_REASONING}")
    names += ignored_in_items(ask.input)
    if any(kind(item) == "reasoning" and not (spoken.thinks and is_own(item, by)) for item in ask.input):
        names.append("input.reasoning")
    return tuple(dict.fromkeys(names))


def request(ask: Ask, who: str, spoken: Dialect = Dialect(), by: Maker = NOBODY) -> dict[str, Json]:
    """The body that asks for `ask`, without `stream`.

    who:     the model, for the error's sentence
    by:      whose thoughts these are, see `convo.models.sealed`
    raises:  Unsupported  an item or parameter that this server could not honour
    """
    said = messages(ask.input, who, ask.instructions, wants_thoughts_of=by if spoken.thinks else None)
    body: dict[str, Json] = {"model": ask.model, "messages": said}
    asked = {name: value for name, value in ask.parameters.items() if value is not None}
    for name, value in asked.items():
        if name in SAME_NAME:
            body[name] = value
        elif name in TRANSLATED:
            body |= TRANSLATED[name](value, asked, who)
        elif name == "max_output_tokens":
            body[spoken.limit] = value
        elif name == "reasoning":
            body |= _reasoning(value, spoken)
        elif name in EXTRA_FIELDS:
            body |= {name: value} if name in spoken.extra else {}
        elif name not in NOT_OURS and MEANS_NOTHING.get(name) != value:
            raise Unsupported(who, f"the parameter {name!r}", param=name)
    return body


def _tools(tools: Json, asked: Mapping[str, Json], who: str) -> dict[str, Json]:
    other = next((tool.get("type") for tool in tools if tool.get("type") != "function"), None)
    if other is not None:
        raise Unsupported(who, f"{other} tools", param="tools")
    allowed = _allowed(asked.get("tool_choice"))
    offered = [_tool(tool) for tool in tools if allowed is None or tool["name"] in allowed]
    return {"tools": offered} if offered else {}


def _tool(tool: Json) -> Json:
    named = {name: tool[name] for name in ("name", "description", "parameters", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": named}


def _allowed(choice: Json) -> set[str] | None:
    """The names that an `allowed_tools` choice leaves: the others are simply not offered."""
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return None
    return {str(tool.get("name")) for tool in choice.get("tools", ())}


def _tool_choice(choice: Json, asked: Mapping[str, Json], who: str) -> dict[str, Json]:
    if not asked.get("tools"):
        return {}
    if isinstance(choice, str):
        return {"tool_choice": choice}
    if choice.get("type") == "allowed_tools":
        return {"tool_choice": choice.get("mode", "auto")}
    if choice.get("type") == "function":
        return {"tool_choice": {"type": "function", "function": {"name": choice["name"]}}}
    raise Unsupported(who, f"a choice of {choice.get('type')} tools", param="tool_choice")


def _parallel(value: Json, asked: Mapping[str, Json], who: str) -> dict[str, Json]:
    return {"parallel_tool_calls": value} if asked.get("tools") else {}


def _text(text: Json, asked: Mapping[str, Json], who: str) -> dict[str, Json]:
    spoken = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    return spoken | _format(text.get("format") or {"type": "text"}, who)


def _format(wanted: Json, who: str) -> dict[str, Json]:
    match wanted.get("type"):
        case "text":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            schema: dict[str, Json] = {name: value for name, value in wanted.items() if name != "type"}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case other:
            raise Unsupported(who, f"{other} as the format of text", param="text.format")


def _reasoning(reasoning: Json, spoken: Dialect) -> dict[str, Json]:
    effort = reasoning.get("effort")
    if effort == "none" and spoken.thinks:
        return {"thinking": {"type": "disabled"}}
    return {"reasoning_effort": effort} if effort else {}


def _include(include: Json, asked: Mapping[str, Json], who: str) -> dict[str, Json]:
    """Thoughts come as they are, and what hosted tools would add is refused with them."""
    return {"logprobs": True} if LOGPROBS in include else {}


def _top_logprobs(most: Json, asked: Mapping[str, Json], who: str) -> dict[str, Json]:
    return {"logprobs": True, "top_logprobs": most} if most else {}


TRANSLATED: dict[str, Callable[[Json, Mapping[str, Json], str], dict[str, Json]]] = {
    "tools": _tools,
    "tool_choice": _tool_choice,
    "parallel_tool_calls": _parallel,
    "text": _text,
    "include": _include,
    "top_logprobs": _top_logprobs,
}
"""What has another shape in chat completions; each gets its value, all that was asked, and the model's name."""
