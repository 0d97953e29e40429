"""Model data: prices, context windows, and abilities known by name.

Figures come from `models.toml`, dated and with sources; settings override them. An unknown price or window is None,
never a guess. Encrypted reasoning is requested only from models that are known to return it; models that are known to
accept only text are sent no images.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from convo.config.sections import ContextLimits, Price

REASONING_MODELS = ("gpt-5", "o1", "o3", "o4", "codex")
NON_REASONING_MODELS = ("gpt-5-chat",)


def has_encrypted_reasoning(model: str) -> bool:
    """Whether this OpenAI model can hand its reasoning out encrypted; `model` without its provider."""
    return model.startswith(REASONING_MODELS) and not model.startswith(NON_REASONING_MODELS)


TEXT_ONLY_MODELS = ("local/", "deepseek/", "openai/o1-mini", "openai/o3-mini", "openai/gpt-3.5")


def is_text_only_model(model: str) -> bool:
    """Whether this model, named with its provider, is known to take neither images nor files."""
    return model.startswith(TEXT_ONLY_MODELS)


def find_price(model: str, own: Mapping[str, Price]) -> Price | None:
    """The price of a model by its full name, provider/model.

    own:  what a person said, by full name
    """
    known = load_prices()
    plain = MODEL_DATE_SUFFIX.sub("", model)
    return own.get(model) or known.get(model) or own.get(plain) or known.get(plain)


@cache
def load_prices() -> Mapping[str, Price]:
    """Every price that is known, by full name."""
    rows = load_model_data()["prices"].items()
    return {name: Price(**({**row, "above": tuple(row["above"])} if "above" in row else row)) for name, row in rows}


MODEL_DATA_FILE = Path(__file__).with_name("models.toml")

MODEL_DATE_SUFFIX = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""How a name ends that means one day's edition of a model."""


SETTINGS_SOURCE = "your settings"
"""The source of what a person said."""

NO_WINDOW_SETTINGS: Mapping[str, ContextLimits] = MappingProxyType({})


class ModelWindow(NamedTuple):
    """What a model has room for, in tokens.

    context:  input and output together
    output:   the longest answer; None where nobody said
    counted:  the vocabulary that counts its text exactly; None where a count is an estimate
    source:   where the figures were read
    """

    context: int
    output: int | None = None
    counted: str | None = None
    source: str = ""


def find_model_window(model: str, own: Mapping[str, ContextLimits] = NO_WINDOW_SETTINGS) -> ModelWindow | None:
    """The window of a model by its provider's own name, with a vendor in front ("openai/gpt-5") or without.

    own:  what a person said, by full name, which goes before what is written down
    """
    name = model.rpartition("/")[2]
    known = load_model_windows().get(name) or load_model_windows().get(MODEL_DATE_SUFFIX.sub("", name))
    said = own.get(model)
    if said is None:
        return known
    return ModelWindow(said.context, said.output, known.counted if known else None, SETTINGS_SOURCE)


@cache
def load_model_windows() -> Mapping[str, ModelWindow]:
    """Every window that is known, by name."""
    return {name: ModelWindow(**row) for name, row in load_model_data()["windows"].items()}


@cache
def load_model_data() -> Mapping[str, Any]:
    """All that is written down of models: when it was read, and its tables."""
    import tomllib  # few commands ask

    return tomllib.loads(MODEL_DATA_FILE.read_text("utf-8"))
