"""All errors of the package as one text: the classes, and the message of each place that creates one.

    python -m tests.docs.errors           print every message with its hint, by class

In a formatted message `{...}` replaces each value. The reference shows the docstrings of the classes;
`tests/test_error_messages.py` tests the rules for all messages.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from convo import errors
from convo.errors import ConvoError
from tests.source_modules import Module, modules

VALUE = "(a value)"


class ErrorMessage(NamedTuple):
    """The error that one place in the source creates: its class, message and hint.

    message:  None if it is not a string literal
    hint:     None if the place uses the hint of the class
    """

    location: str
    error: type[ConvoError]
    message: str | None
    hint: str | None

    @property
    def next_step(self) -> str:
        return self.error.hint if self.hint is None else self.hint


def error_classes() -> list[type[ConvoError]]:
    """The class tree; each class precedes its subclasses."""
    return [*_subclasses(ConvoError)]


def _subclasses(top: type[ConvoError]) -> Iterator[type[ConvoError]]:
    yield top
    for one in top.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from _subclasses(one)


@cache
def error_messages() -> list[ErrorMessage]:
    """All places in the package that create one of our errors."""
    return [one for module in modules() for one in error_messages_in(module)]


def error_messages_in(module: Module) -> Iterator[ErrorMessage]:
    classes_by_name = {one.__name__: one for one in error_classes()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes_by_name:
            hints = [_text(keyword.value) or VALUE for keyword in node.keywords if keyword.arg == "hint"]
            error = classes_by_name[node.func.id]
            own = error.__init__ is not ConvoError.__init__ and not issubclass(error, errors.EndpointFault)
            message = None if own or not node.args else _text(node.args[0])
            yield ErrorMessage(f"{module.name}:{node.lineno}", error, message, hints[0] if hints else None)


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    return None


def document() -> str:
    """All classes and messages as one text."""
    places = defaultdict(list)
    for one in error_messages():
        places[one.error].append(one)
    lines: list[str] = []
    for error in error_classes():
        lines += [
            "",
            f"{error.__name__}: {error.code}, exit {error.exit}, status {error.status}",
            f"  try: {error.hint}",
        ]
        for one in places[error]:
            step = "" if one.hint is None else f"\n      try: {one.hint}"
            lines.append(f"  - {one.message or VALUE}  [{one.location}]{step}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(document())
