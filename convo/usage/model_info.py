"""Model data: prices, context windows, shutdown dates, and abilities known by name.

The data is in `models.toml`, with dates and sources; settings override it. An unknown price or window is None, never a
guess. Encrypted reasoning is requested only from models that are known to return it; models that are known to accept
only text are sent no images.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from convo.config.model_lists import get_listed_shutdown_date
from convo.config.request_settings import EFFORT_FIELD
from convo.config.sections import ContextLimits, Price, find_model_entry
from convo.config.settings import ModelName, Settings
from convo.report import HIDDEN, Count

REASONING_MODELS = ("gpt-5", "gpt-6", "o1", "o3", "o4", "codex")
# It is asked for no encrypted reasoning: that is a 400.
NON_REASONING_MODELS = ("gpt-5-chat",)


def has_encrypted_reasoning(model: str) -> bool:
    """Whether this OpenAI model can return encrypted reasoning; `model` is without the provider."""
    return model.startswith(REASONING_MODELS) and not model.startswith(NON_REASONING_MODELS)


_GPT_MODEL = r"(?:ft:)?gpt-(?P<major>\d)(?:\.(?P<minor>\d+))?(?![\d.])"
"""The name of a GPT model, dated or not; Azure's gpt-35-turbo has no version in this form."""


def gpt_version(model: str) -> tuple[int, int]:
    """Return the version of a GPT model, named with or without its provider; (0, 0) for another model."""
    gpt = re.match(_GPT_MODEL, model.rpartition("/")[2])
    return (int(gpt["major"]), int(gpt["minor"] or 0)) if gpt else (0, 0)


def appends_instructions(model: str) -> bool:
    """Whether this model appends the field `instructions` to the input and bills it uncached: GPT-6.2 and later.

    Source: OpenAI, "Using GPT-6.2", November 2026
    """
    return gpt_version(model) >= (6, 2)


def has_cache_diagnostics(model: str) -> bool:
    """Whether the vendor of this model says why its cache missed: OpenAI for GPT-5.6 and later, Anthropic for Claude.

    Sources: openai.types.responses.ResponseCreateParams, anthropic.types.MessageCreateParams
    """
    return model.startswith("claude") or gpt_version(model) >= (5, 6)


def describe_appended_instructions(model: str) -> str:
    """Describe the cost of the field `instructions` with a model that appends it."""
    return f"{model} bills top-level instructions uncached with every request"


TEXT_ONLY_MODELS = ("local/", "deepseek/")


def is_text_only_model(model: str) -> bool:
    """Whether this model, given with its provider, is known to accept neither images nor files."""
    return model.startswith(TEXT_ONLY_MODELS)


_IMAGE_MODELS = tuple(f"openai/{prefix}" for prefix in ("gpt-4o", "gpt-4.1", "gpt-5", "gpt-6", "o1", "o3", "o4"))
_CLAUDE_MODEL = r"claude-(?:[a-z]+-)?(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2})(?!\d))?"
_REASONING_CLAUDE_VERSION = (3, 7)


def lacks_reasoning_effort(model: str, api: str) -> bool:
    """Whether convo itself refuses a reasoning effort for this model.

    model:  the name without its provider
    api:    of the provider, as in `Provider`
    """
    claude = re.match(_CLAUDE_MODEL, model) if api == "anthropic" else None
    is_older = claude is not None and (int(claude["major"]), int(claude["minor"] or 0)) < _REASONING_CLAUDE_VERSION
    return api == "local" or is_older


REFUSED_FIELDS = (EFFORT_FIELD, "temperature", "top_p", "top_logprobs", "include")
"""The fields of a request that GPT-6.2 and later models refuse, or some values of them."""


def describe_refused_field(model: str, field: str, value: object, *, api: str, is_openai: bool) -> str | None:
    """Describe a field of a request that this model is known to refuse; None for any other field.

    model, api:  as in `lacks_reasoning_effort`
    field:       "reasoning.effort" is the member `effort` of `reasoning`
    is_openai:   as in `Provider`
    """
    if field == EFFORT_FIELD and value != "none" and lacks_reasoning_effort(model, api):
        return "a reasoning effort"
    if value is None or field not in REFUSED_FIELDS or not (is_openai and appends_instructions(model)):
        return None
    if field == EFFORT_FIELD:
        return f"the reasoning effort {value!r}" if value in ("none", "minimal") else None
    if field == "include":
        return "log probabilities" if isinstance(value, list) and "message.output_text.logprobs" in value else None
    return f"the parameter {field!r}"


def describe_capabilities(
    model: str, price_settings: Mapping[str, Price], window_settings: Mapping[str, ContextLimits]
) -> dict[str, Any]:
    """Describe the capabilities of a model, named provider/model, as far as they are known; None is unknown.

    Tokens for `context_window` (input and output together) and `max_output_tokens`; USD per million tokens for `price`.
    """
    window, price = find_model_window(model, window_settings), find_price(model, price_settings)
    claude = re.fullmatch(_CLAUDE_MODEL, MODEL_DATE_SUFFIX.sub("", model.rpartition("/")[2]))
    is_local = model.startswith("local/")
    is_known = claude is not None or (model.startswith(_IMAGE_MODELS) and not is_text_only_model(model))
    reasons: bool | None = None
    if is_local:
        reasons = False
    elif claude is not None:
        reasons = (int(claude["major"]), int(claude["minor"] or 0)) >= _REASONING_CLAUDE_VERSION
    elif is_known:
        reasons = has_encrypted_reasoning(model.removeprefix("openai/"))
    return {
        "context_window": window.context if window else None,
        "max_output_tokens": window.output if window else None,
        "input_modalities": ["text"] if is_text_only_model(model) else ["text", "image", "file"] if is_known else None,
        "tools": False if is_local else True if is_known else None,
        "reasoning": reasons,
        "price": None
        if price is None
        else {
            "input": price.input,
            "cached_input": price.cached,
            "cache_write": price.written,
            "output": price.output,
            "max_input_tokens": price.max_input_tokens,
            "source": price.source or SETTINGS_SOURCE,
        },
    }


def find_price(model: str, price_settings: Mapping[str, Price], service_tier: str | None = None) -> Price | None:
    """Return the price of a model, or None. All names are provider/model.

    `price_settings` take precedence over models.toml; a dated name without a price has that of the name without its
    date.

    service_tier:  as a response reported it; None for the standard price
    """
    undated_model = MODEL_DATE_SUFFIX.sub("", model)
    price = (
        find_model_entry(price_settings, model)
        or find_known_model(model).price
        or find_model_entry(price_settings, undated_model)
        or find_known_model(undated_model).price
    )
    return price and price.at_tier(service_tier)


MODEL_DATA_FILE = Path(__file__).with_name("models.toml")

MODEL_DATE_SUFFIX = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""The date at the end of a model's name."""


SETTINGS_SOURCE = "your settings"
"""The `source` of a window from the settings."""

NO_WINDOW_SETTINGS: Mapping[str, ContextLimits] = MappingProxyType({})


class ModelWindow(NamedTuple):
    """The context window of a model, in tokens.

    context:  input and output together
    output:   the maximum output; null if unknown
    counted:  the encoding of the model's tokenizer; None if counts are estimates
    source:   the URL of the data, "convo", or "the file"
    reserved: the part of the context that is reserved for the output
    is_secondary: whether the source is not the vendor's own
    """

    context: Count
    output: int | None = None
    counted: Annotated[str | None, HIDDEN] = None
    source: str = ""
    reserved: Annotated[int, HIDDEN] = 0
    is_secondary: Annotated[bool, HIDDEN] = False

    @property
    def max_input(self) -> int:
        """The most input tokens that a request may have."""
        return max(0, self.context - self.reserved)


ENGINE_CONTEXT_TOKENS, ENGINE_RESERVED_TOKENS = 4_096, 256
"""Context window of convo's own engine (`convo.models.local_process`), and the part of it reserved for the output."""

ENGINE_WINDOWS: Mapping[str, ModelWindow] = MappingProxyType(
    {"local/smollm2-135m-instruct": ModelWindow(ENGINE_CONTEXT_TOKENS, source="convo", reserved=ENGINE_RESERVED_TOKENS)}
)
"""The windows that convo's own engine gives the models it runs, by provider/model (`convo.models.local_process`)."""


def find_model_window(
    model: str, window_settings: Mapping[str, ContextLimits] = NO_WINDOW_SETTINGS
) -> ModelWindow | None:
    """Return the window of a model, with or without a vendor in front ("openai/gpt-5"), or None.

    window_settings:  windows by provider/model from the settings, or reported by a server; they take precedence
    """
    name, names = model.rpartition("/")[2], _load_names_with_window()
    known_name = names.get(name) or names.get(MODEL_DATE_SUFFIX.sub("", name)) or ""
    known = ENGINE_WINDOWS.get(model) or _find_gguf_window(model) or find_known_model(known_name).window
    limits = find_model_entry(window_settings, model)
    if limits is None:
        return known
    source = limits.source or SETTINGS_SOURCE
    return ModelWindow(limits.context_tokens, limits.output_tokens, known.counted if known else None, source)


def _find_gguf_window(model: str) -> ModelWindow | None:
    """Return the window of the GGUF file `local/PATH`: the smaller of that in its metadata and the engine's."""
    if not model.startswith("local/") or not model.endswith(".gguf"):
        return None
    path = os.path.abspath(os.path.expanduser(model.removeprefix("local/")))
    from convo.usage.gguf import read_context_length  # only needed for files of weights

    tokens = read_context_length(path)
    if tokens is None:
        return None
    return ModelWindow(min(ENGINE_CONTEXT_TOKENS, tokens), source="the file", reserved=ENGINE_RESERVED_TOKENS)


class Shutdown(NamedTuple):
    """The end of a model.

    date:         the first day on which it is not served, as YYYY-MM-DD
    replacement:  the model that its vendor names in its place
    """

    date: str
    replacement: str | None = None

    def __str__(self) -> str:
        return self.date + (f", replaced by {self.replacement}" if self.replacement else "")

    def is_near(self, now: float) -> bool:
        """Return whether the date is past, or within `SHUTDOWN_NOTICE_DAYS` of `now`, in seconds since 1970."""
        from datetime import UTC, datetime

        return self.date <= str(datetime.fromtimestamp(now + SHUTDOWN_NOTICE_DAYS * 86_400, UTC).date())


SHUTDOWN_NOTICE_DAYS = 60
"""Days before the shutdown of a model from which on commands warn of it."""


class KnownModel(NamedTuple):
    """One row of models.toml; `read` is the date when its source was read, as YYYY-MM-DD."""

    window: ModelWindow | None = None
    price: Price | None = None
    shutdown: Shutdown | None = None
    read: str = ""


NOTHING_KNOWN = KnownModel()


def load_known_models() -> Mapping[str, KnownModel]:
    """Return all rows of models.toml by provider/model."""
    data = _load_model_data()
    return {name: find_known_model(name) for name in (*data["models"], *data["shut_down"])}


def find_known_model(name: str) -> KnownModel:
    """Return the row of a model, named provider/model; of one that was shut down it has nothing but the date."""
    data = _load_model_data()
    is_known = name in data["models"] or name in data["shut_down"]
    return _build_known_model(name) if is_known else NOTHING_KNOWN


@cache
def _load_model_data() -> Mapping[str, Any]:
    import tomllib  # only needed by a few commands

    return tomllib.loads(MODEL_DATA_FILE.read_text("utf-8"))


@cache
def _build_known_model(name: str) -> KnownModel:
    data = _load_model_data()
    if name in data["shut_down"]:
        return KnownModel(shutdown=_build_shutdown(data["shut_down"][name]))
    return _build_model(data["models"][name], data["tiers"].get(name.partition("/")[0], {}))


def _build_model(row: Mapping[str, Any], tier_factors: Mapping[str, float]) -> KnownModel:
    source, is_secondary = row["source"], row.get("secondary", False)
    window = price = None
    if "context" in row:
        figures = {name: row[name] for name in ("context", "output", "counted") if name in row}
        window = ModelWindow(**figures, source=source, is_secondary=is_secondary)
    if "price" in row:
        figures = {"source": source, **row["price"]}
        tiers = {**tier_factors, **figures.pop("tiers", {})}
        price = Price(**figures, tier_factors=tiers, is_secondary=is_secondary)
    shutdown = _build_shutdown(row["shutdown"]) if "shutdown" in row else None
    return KnownModel(window, price, shutdown, str(row["read"]))


def _build_shutdown(row: Mapping[str, Any]) -> Shutdown:
    return Shutdown(str(row["date"]), row.get("replacement"))


@cache
def _load_names_with_window() -> Mapping[str, str]:
    """Return the models with a known window as provider/model, by the model's own name."""
    return {name.rpartition("/")[2]: name for name, row in _load_model_data()["models"].items() if "context" in row}


def find_listed_shutdown(name: ModelName, settings: Settings) -> Shutdown | None:
    """Return the announced shutdown of a model, with the date of its server where `convo models --ask` has got one."""
    provider = settings.providers.get(name.provider)
    date = get_listed_shutdown_date(provider, settings.model_lists, name.model) if provider else None
    return find_shutdown(str(name), date)


def find_shutdown(model: str, listed_date: str | None = None) -> Shutdown | None:
    """Return the announced shutdown of a model, named provider/model; None without one.

    listed_date:  YYYY-MM-DD, as its server lists it; it takes precedence over models.toml
    """
    known = find_known_model(model).shutdown or find_known_model(MODEL_DATE_SUFFIX.sub("", model)).shutdown
    if listed_date is None:
        return known
    return Shutdown(listed_date, known.replacement if known else None)
