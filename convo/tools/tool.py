"""A tool as a value, and the decorator that makes one of a function.

The function says it all: its name, what its docstring tells, the types of its parameters. A first
parameter of the type `Context` is told who asks and is not the model's business. Sync or async is
the engine's affair: it calls `run` and waits where there is something to wait for.

    @tool(needs_approval=True)
    def refund(order: str, cents: int) -> str:
        "Pay an order back."
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_type_hints, overload

from convo.errors import InputFault
from convo.items import Item, Json
from convo.tools.doc import told
from convo.tools.forms import Field, Record, form

NO_VALUES: Final[Mapping[str, Json]] = MappingProxyType({})
"""The application's own values, where it gave none."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a tool may know beside its arguments.

    agent:    the identity of the agent that asks
    call_id:  the provider's string
    values:   the application's own, as the run carries them
    usages:   the usage of each model call of the run so far, as the response said it
    input:    the items that the run began with
    call:     the call as the model made it; None outside a call
    """

    agent: str
    tool: str
    call_id: str
    values: Mapping[str, Json] = field(default_factory=dict)
    usages: tuple[Mapping[str, Json], ...] = ()
    input: tuple[Item, ...] = ()
    call: Item | None = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """A group of tools that the model sees under one name."""

    name: str
    description: str


Approval: TypeAlias = bool | Callable[[Context, Mapping[str, object]], bool | Awaitable[bool]]
"""Whether a call has to be approved: always, never, or what a function says of its arguments."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may ask for.

    parameters:   the JSON schema of its arguments
    run:          called with the arguments by name, after the Context where `takes_context`; a tool of
                  another package is called with the Context and the arguments as the model wrote them
    record:       reads the arguments; None where the tool reads them itself
    deferred:     shown to the model only once it has searched for it
    timeout_s:    how long one call may take; None: as long as it likes
    on_timeout:   "tell" the model, or "fail" the run
    failure:      the words for the model when the tool raised; None: the run fails with it
    enabled:      whether the model is shown it, where that is asked before every turn
    serialize:    makes the output item's `output` of what `run` returned; None: `output_text`
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    run: Callable[..., object]
    record: Record | None = None
    strict: bool = True
    takes_context: bool = False
    needs_approval: Approval = False
    namespace: Namespace | None = None
    deferred: bool = False
    timeout_s: float | None = None
    on_timeout: Literal["tell", "fail"] = "tell"
    failure: Callable[[Exception], str] | None = field(default=lambda raised: FAILED)
    enabled: bool | Callable[[Context], bool | Awaitable[bool]] = True
    serialize: Callable[[Any], Json] | None = None

    @property
    def is_async(self) -> bool:
        """Whether a call has to be waited for; whatever else it does belongs on a thread of its own."""
        return inspect.iscoroutinefunction(self.run)

    @property
    def title(self) -> str:
        """The name that a person knows it by."""
        return f"{self.namespace.name}.{self.name}" if self.namespace else self.name


FAILED = "An error occurred while running the tool. Please try again."
"""What a model is told of a tool that raised, as the Agents SDK says it: no word of the error itself."""


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
    strict: bool = True,
    namespace: Namespace | None = None,
    deferred: bool = False,
    timeout_s: float | None = None,
    on_timeout: Literal["tell", "fail"] = "tell",
    failure: Callable[[Exception], str] | None = ...,
    enabled: bool | Callable[[Context], bool | Awaitable[bool]] = True,
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
    **settings: Any,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a function; alone, or with fields of `Tool` by name.

    raises:  InputFault  a parameter cannot be said in a schema, or a setting makes no sense
    """
    if function is None:
        return lambda plain: _made(plain, name, description, strict, settings)
    return _made(function, name, description, strict, settings)


def _made(
    function: Callable[..., object], name: str | None, description: str | None, strict: bool, settings: dict[str, Any]
) -> Tool:
    called = name or function.__name__
    if settings.get("timeout_s") is not None and settings["timeout_s"] <= 0:
        raise InputFault(f"tool {called!r} may take {settings['timeout_s']} seconds", hint="give it more than none")
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    words = told(function, tuple(signature.parameters))
    parameters = list(signature.parameters.values())
    takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
    fields = tuple(_field(one, hints, words.fields, called, strict) for one in parameters[takes_context:])
    record = Record(fields, strict)
    return Tool(
        name=called,
        description=words.words if description is None else description,
        parameters=record.schema,
        run=function,
        record=record,
        strict=strict,
        takes_context=takes_context,
        **settings,
    )


def _field(
    one: inspect.Parameter, hints: Mapping[str, Any], words: Mapping[str, str], called: str, strict: bool
) -> Field:
    where = f"parameter {one.name!r} of tool {called!r}"
    if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
        raise InputFault(f"{where} has no name of its own that a model could use", hint="take a list, or name each one")
    if one.name not in hints:
        raise InputFault(f"{where} has no type", hint="annotate it: the schema is made of the types")
    if hints[one.name] is Context:
        raise InputFault(f"{where} is the Context and not the first", hint="put it first")
    default = None if one.default is one.empty else _constant(one.default)
    return Field(one.name, form(hints[one.name], where, strict=strict), default, words.get(one.name))


def _constant(value: object) -> Callable[[], object]:
    return lambda: value
