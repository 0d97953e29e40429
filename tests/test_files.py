"""Rules for single files.

Every module has a docstring, no name contains a vague word, and only the listed modules catch every
exception. An exemption is a row with its reason. Each rule is also tested with a line that breaks it.
"""

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.source_modules import Module, modules, walk_statements

BROAD_HANDLERS = {
    "convo.cli.app": "the edge of the process: nothing above would catch it",
    "convo.agent_runner.user_code": "whatever a person's own function raises is what came of it",
    "convo.stores.sqlite.connection": "what a job raises in its thread is raised again where somebody waits for it",
}
"""Modules that may catch every exception without raising; all others re-raise it or raise one of ours."""

ANY_ERROR = {"Exception", "BaseException"}

VAGUE = {"helper", "helpers", "manager", "managers", "misc", "util", "utils"}
"""Words without a meaning in the field."""

Rule = Callable[[Module], Iterator[str]]

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def missing_docstrings(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.name} does not say what it is"


def vague_names(module: Module) -> Iterator[str]:
    named_nodes = [node.name for node in walk_statements(module.tree) if isinstance(node, DEFINITIONS)]
    for name in (module.name.rpartition(".")[2], *named_nodes):
        if VAGUE & set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_")):
            yield f"{module.name} has a {name}, which says nothing"


def catches_any_error(module: Module) -> Iterator[str]:
    for node in walk_statements(module.tree):
        if isinstance(node, ast.ExceptHandler) and module.name not in BROAD_HANDLERS and is_broad_handler(node):
            yield f"{module.name}:{node.lineno} takes any error for an answer"


def is_broad_handler(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches every exception and does not end with `raise`."""
    kinds = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else ANY_ERROR
    return bool(kinds & ANY_ERROR) and not isinstance(handler.body[-1], ast.Raise)


RULES: tuple[Rule, ...] = (missing_docstrings, vague_names, catches_any_error)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_file_breaks_a_rule(rule: Rule) -> None:
    complaints = "\n".join(complaint for module in modules() for complaint in rule(module))
    assert complaints == ""


TEST_RULES: tuple[Rule, ...] = (vague_names,)


@pytest.mark.parametrize("rule", TEST_RULES, ids=lambda rule: rule.__name__)
def test_no_test_breaks_a_rule_of_theirs(rule: Rule) -> None:
    complaints = "\n".join(complaint for module in modules("tests") for complaint in rule(module))
    assert complaints == ""


def test_every_file_of_tests_says_what_it_is() -> None:
    complaints = [complaint for module in modules("tests") if module.source for complaint in missing_docstrings(module)]
    assert complaints == []


BROKEN = [
    (missing_docstrings, "convo.history.items", "x = 1"),
    (vague_names, "convo.items.utils", "x = 1"),
    (vague_names, "convo.history.items", "class TextManager: ..."),
    (catches_any_error, "convo.chat.turn", "try: ...\nexcept Exception: ..."),
    (catches_any_error, "convo.chat.turn", "try: ...\nexcept (KeyError, BaseException): ..."),
    (catches_any_error, "convo.chat.turn", "try: ...\nexcept: ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), BROKEN)
def test_a_rule_is_broken_by_a_line_that_it_forbids(rule: Rule, name: str, source: str) -> None:
    assert len(list(rule(Module(name, source)))) == 1


ALLOWED = [
    (vague_names, "convo.history.items", "def utility(): ..."),
    (catches_any_error, "convo.chat.turn", "try: ...\nexcept BaseException:\n    undo()\n    raise"),
    (catches_any_error, "convo.chat.turn", "try: ...\nexcept KeyError: ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), ALLOWED)
def test_a_rule_is_kept_by_a_line_that_it_allows(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []


def test_whoever_may_take_any_error_still_does() -> None:
    modules_that_catch = {
        module.name
        for module in modules()
        for node in walk_statements(module.tree)
        if isinstance(node, ast.ExceptHandler) and is_broad_handler(node)
    }
    assert modules_that_catch == set(BROAD_HANDLERS)
