"""Which parts of an ask a model's request leaves out, by name.

Nothing is dropped silently: a field is sent, translated, refused by name, or reported as ignored. Ignored are hints
that change the cost or the form of an answer and not its meaning. The names are paths in the request:

    service_tier                a parameter
    reasoning.summary           a field of one
    tools.defer_loading         a field of a function tool
    input.message.phase         a field of an item, by the item's type
    input.reasoning             a reasoning item that this model cannot be sent
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from convo.config.providers import EXTRA_FIELDS
from convo.items import Item, Json, kind

OPENAI_CHAT_FIELDS = frozenset(EXTRA_FIELDS) - {"top_k", "chat_template_kwargs"}
"""Those that chat completions of OpenAI and Azure know."""

OPENAI_RESPONSES_FIELDS = OPENAI_CHAT_FIELDS - {"seed", "stop"}
"""Those that every server of the Responses API knows."""

ITEM_FIELDS = frozenset(
    {"type", "id", "status", "role", "content", "call_id", "name", "arguments", "output", "created_by", "object"}
)
"""Fields of messages, function calls and their outputs that a translation carries, or that only servers set."""

PART_FIELDS = frozenset(
    {"type", "text", "refusal", "image_url", "detail", "filename", "file_data", "input_audio", "logprobs"}
)

TOOL_FIELDS = frozenset({"type", "name", "description", "parameters", "strict"})


def ignored_parameters(
    parameters: Mapping[str, Json], *, known: Collection[str], reasoning: Collection[str]
) -> Iterator[str]:
    """The hints among `parameters` that a translation leaves out.

    known:      the extra fields that are sent or translated
    reasoning:  the fields of `reasoning` that are
    """
    for name, value in parameters.items():
        if value is None:
            continue
        if (name in EXTRA_FIELDS and name not in known) or name == "max_tool_calls":
            yield name
        elif name == "reasoning":
            yield from (f"reasoning.{field}" for field in value if value[field] is not None and field not in reasoning)
        elif name == "tools":
            functions = (tool for tool in value if tool.get("type") == "function")
            yield from (f"tools.{field}" for tool in functions for field in _more(tool, TOOL_FIELDS))


def ignored_in_items(items: Iterable[Item]) -> Iterator[str]:
    """The fields of items that a translation has no place for."""
    for item in items:
        if kind(item) == "reasoning":
            continue
        yield from (f"input.{kind(item)}.{field}" for field in _more(item, ITEM_FIELDS))
        for parts in (item.get("content"), item.get("output")):
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, Mapping):
                    yield from (f"input.{part.get('type')}.{field}" for field in _more(part, PART_FIELDS))


def _more(value: Mapping[str, Json], known: Collection[str]) -> Iterator[str]:
    """The fields of `value` that say something and are not `known`."""
    return (name for name, inner in value.items() if name not in known and inner not in (None, [], {}))
