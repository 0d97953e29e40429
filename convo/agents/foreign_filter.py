"""An input filter written for the Agents SDK: `call_model_input_filter`, with the SDK's own data types.

It receives a `CallModelData` with `model_data` (a `ModelInputData`), `agent` and `context`, and returns a
`ModelInputData`. A filter is the SDK's if its annotations name one of these types, or if it has none and the
agents are the SDK's. The package is imported when the filter is called.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from convo.agents.foreign_context import easy_form
from convo.agents.foreign_fields import PACKAGE
from convo.errors import InputFault
from convo.items import Item
from convo.tools import NO_VALUES, Context

TYPES = ("CallModelData", "ModelInputData")


@dataclass(frozen=True)
class ForeignInputFilter:
    """A filter of the SDK. agents: the SDK's own, by their identity in the graph"""

    function: Callable[[Any], Any]
    agents: Mapping[str, Any]

    async def __call__(
        self, items: Sequence[Item], instructions: str | None, context: Context
    ) -> tuple[list[Item], str | None]:
        """What the filter makes of a model call's input. raises: InputFault  it returned something else"""
        config = import_module(f"{PACKAGE}.run_config")
        easy = [easy_form(item) for item in items]
        values = None if context.values is NO_VALUES else context.values
        data = config.ModelInputData(input=list(easy), instructions=instructions)
        made = self.function(
            config.CallModelData(model_data=data, agent=self.agents.get(context.agent), context=values)
        )
        made = await made if inspect.isawaitable(made) else made
        if not isinstance(made, config.ModelInputData):
            raise InputFault(
                "the input filter did not return a ModelInputData", hint="return data.model_data, or a new one"
            )
        return [_as_given(item, easy, items) for item in made.input], made.instructions


def is_foreign_filter(function: Callable[..., Any], *, foreign_agents: bool) -> bool:
    """Whether a filter is the SDK's."""
    said = " ".join(str(one) for one in getattr(function, "__annotations__", {}).values())
    return any(name in said for name in TYPES) or (foreign_agents and not said)


def _as_given(item: Any, easy: Sequence[Item], items: Sequence[Item]) -> Any:
    """The item itself where the filter left it as it was: the SDK gets a user's text in a shorter form."""
    return next((own for short, own in zip(easy, items, strict=True) if short == item), item)
