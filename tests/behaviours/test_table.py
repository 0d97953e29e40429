"""The table has a verdict for every sentence, and existing tests show each behaviour."""

import inspect
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.table import Sentence, Shown, sentences

TABLE = sentences()
SHOWN = sorted({one for sentence in TABLE for one in sentence.shown}, key=lambda one: (one.module, one.function))
HERE = Path(__file__).parent


LEFT_OUT = {"full", "skip", "skipif", "xfail"}
"""Marks of tests that may be omitted or may fail."""


def marked(of: Any) -> list[Any]:
    """The marks of a test or a module."""
    found = getattr(of, "pytestmark", [])
    return found if isinstance(found, list) else [found]


def marks(of: Any) -> set[str]:
    """The fixtures that a test or a module requests with a mark."""
    return {name for mark in marked(of) for name in mark.args if isinstance(name, str)}


def test_the_table_has_118_numbered_sentences() -> None:
    assert [sentence.number for sentence in TABLE] == list(range(1, 119))


@pytest.mark.parametrize("sentence", TABLE, ids=lambda one: str(one.number))
def test_a_sentence_has_one_verdict_with_its_tests_or_remarks(sentence: Sentence) -> None:
    """Only "same" and "better" have tests, only "same" may lack a remark, and no sentence has two verdicts."""
    assert len(sentence.verdicts) == 1
    assert bool(sentence.shown) == sentence.ours
    assert sentence.remarks or sentence.verdicts == {"same"}
    assert not any(remark.startswith(("same", "better", "not ours")) for remark in sentence.remarks)
    assert sentence.said.endswith(".")


def check(shown: Shown) -> None:
    """Assert that a test exists, always runs, and reads its runs in the ways that the table lists."""
    module = import_module(f"tests.{shown.module}")
    function = getattr(module, shown.function)
    assert not {mark.name for mark in marked(function) + marked(module)} & LEFT_OUT
    asked = marks(function) | marks(module) | set(inspect.signature(function).parameters)
    assert shown.both == ("read_mode" in asked)
    assert shown.both <= inspect.iscoroutinefunction(function)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda one: one.function)
def test_each_listed_test_always_runs_and_uses_both_read_modes_where_the_table_says_so(shown: Shown) -> None:
    check(shown)


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        (Shown("same", "behaviours.test_deltas", "test_of_nothing", True), AttributeError),
        (Shown("same", "behaviours.test_nothing", "test_of_nothing", True), ImportError),
        (replace(SHOWN[0], both=not SHOWN[0].both), AssertionError),
        (Shown("same", "behaviours.test_table", "long", False), AssertionError),
    ],
)
def test_a_listed_test_that_is_missing_or_does_not_always_run_is_an_error(shown: Shown, error: type[Exception]) -> None:
    with pytest.raises(error):
        check(shown)


@pytest.mark.full
def long() -> None:
    """A function with the mark of a test that a default run omits."""


def test_the_table_lists_every_test_of_this_folder() -> None:
    listed = {(one.module, one.function) for one in SHOWN}
    for file in HERE.glob("test_*.py"):
        if file.stem != "test_table":
            module = import_module(f"tests.behaviours.{file.stem}")
            found = {(f"behaviours.{file.stem}", name) for name in vars(module) if name.startswith("test_")}
            assert found <= listed


def test_three_sentences_are_not_ours_and_most_others_are_the_same() -> None:
    counted = Counter(next(iter(sentence.verdicts)) for sentence in TABLE)
    assert counted["not ours"] == 3
    assert counted["same"] > counted["better"]
