"""Each file of the house by itself.

How long it and its functions may be, that it says what it is, that its package says so too, that its names mean
something, and who may take any error for an answer. An exception is a row with its reason. Every
rule is also tried on a line that breaks it.
"""

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.house import Module, modules

CATCHES = {
    "convo.cli.app": "the edge of the process: nothing above would catch it",
    "convo.engine.theirs": "whatever a person's own function raises is what came of it",
    "convo.stores.sqlite.database": "what a job raises in its thread is raised again where somebody waits for it",
}
"""Who may take any error for an answer; everybody else raises it, or ours in its place."""

ANY_ERROR = {"Exception", "BaseException"}

LINES, OF_A_FUNCTION = 400, 40
"""A file is one story and a function one thought; past this they are two."""

VAGUE = {"helper", "helpers", "manager", "managers", "misc", "util", "utils"}
"""Words that name nothing of the field."""

UNLISTED = {
    "": "the README maps the packages",
    "convo": "the README maps the packages",
    "convo.runstate.versions": "a file is named after the label that it is about",
}
"""Packages whose story does not name every module."""


Rule = Callable[[Module], Iterator[str]]

NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def too_long(module: Module) -> Iterator[str]:
    lines = module.source.count("\n")
    if lines > LINES:
        yield f"{module.name} has {lines} lines"


def too_much_in_one(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > OF_A_FUNCTION:
                yield f"{module.name}:{node.lineno} {node.name} has {lines} lines"


def without_a_story(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.name} does not say what it is"


def in_no_story(module: Module) -> Iterator[str]:
    parent, _, name = module.name.rpartition(".")
    stories = {each.name: ast.get_docstring(each.tree) or "" for each in modules() if each.name == parent}
    if parent not in UNLISTED and name not in named_in(stories[parent]):
        yield f"{parent} does not say what {name} is for"


def named_in(story: str) -> set[str]:
    """What stands in backticks, or as a heading of a line in a table."""
    return {*re.findall(r"`(\w+)`", story), *re.findall(r"^ +(\w+)  ", story, re.MULTILINE)}


def vaguely_named(module: Module) -> Iterator[str]:
    named = [node.name for node in ast.walk(module.tree) if isinstance(node, NAMED)]
    for name in (module.name.rpartition(".")[2], *named):
        if VAGUE & set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_")):
            yield f"{module.name} has a {name}, which says nothing"


def takes_any_error(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and module.name not in CATCHES and takes_any(node):
            yield f"{module.name}:{node.lineno} takes any error for an answer"


def takes_any(handler: ast.ExceptHandler) -> bool:
    """Whether it catches whatever is raised and does not end by raising."""
    kinds = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else ANY_ERROR
    return bool(kinds & ANY_ERROR) and not isinstance(handler.body[-1], ast.Raise)


RULES: tuple[Rule, ...] = (too_long, too_much_in_one, without_a_story, in_no_story, vaguely_named, takes_any_error)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_file_breaks_a_rule(rule: Rule) -> None:
    complaints = "\n".join(complaint for module in modules() for complaint in rule(module))
    assert complaints == ""


OF_TESTS: tuple[Rule, ...] = (too_long, vaguely_named)


@pytest.mark.parametrize("rule", OF_TESTS, ids=lambda rule: rule.__name__)
def test_no_test_breaks_a_rule_of_theirs(rule: Rule) -> None:
    complaints = "\n".join(complaint for module in modules("tests") for complaint in rule(module))
    assert complaints == ""


def test_every_file_of_tests_says_what_it_is() -> None:
    complaints = [complaint for module in modules("tests") if module.source for complaint in without_a_story(module)]
    assert complaints == []


BROKEN = [
    (too_long, "convo.items.text", "x = 1\n" * 401),
    (too_much_in_one, "convo.items.text", "def f():\n" + "    ...\n" * 40),
    (without_a_story, "convo.items.text", "x = 1"),
    (in_no_story, "convo.items.nowhere", "x = 1"),
    (vaguely_named, "convo.items.utils", "x = 1"),
    (vaguely_named, "convo.items.text", "class TextManager: ..."),
    (takes_any_error, "convo.engine.turn", "try: ...\nexcept Exception: ..."),
    (takes_any_error, "convo.engine.turn", "try: ...\nexcept (KeyError, BaseException): ..."),
    (takes_any_error, "convo.engine.turn", "try: ...\nexcept: ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), BROKEN)
def test_a_rule_is_broken_by_a_line_that_it_forbids(rule: Rule, name: str, source: str) -> None:
    assert len(list(rule(Module(name, source)))) == 1


KEPT = [
    (too_much_in_one, "convo.items.text", "async def f():\n" + "    ...\n" * 39),
    (in_no_story, "convo.items.text", "x = 1"),
    (vaguely_named, "convo.items.text", "def utility(): ..."),
    (takes_any_error, "convo.engine.turn", "try: ...\nexcept BaseException:\n    undo()\n    raise"),
    (takes_any_error, "convo.engine.turn", "try: ...\nexcept KeyError: ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), KEPT)
def test_a_rule_is_kept_by_a_line_that_it_allows(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []


def test_whoever_may_take_any_error_still_does() -> None:
    takers = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and takes_any(node)
    }
    assert takers == set(CATCHES)
