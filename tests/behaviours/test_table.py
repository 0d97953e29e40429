"""The table says something of every sentence, and nothing that no test shows."""

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
"""Marks of what may not run, or may fail."""


def marked(of: Any) -> list[Any]:
    """The marks of a test or a module."""
    found = getattr(of, "pytestmark", [])
    return found if isinstance(found, list) else [found]


def marks(of: Any) -> set[str]:
    """The fixtures that a test or a module asks for by a mark."""
    return {name for mark in marked(of) for name in mark.args if isinstance(name, str)}


def test_there_are_118_sentences_each_under_its_number() -> None:
    assert [sentence.number for sentence in TABLE] == list(range(1, 119))


@pytest.mark.parametrize("sentence", TABLE, ids=lambda one: str(one.number))
def test_a_sentence_has_one_verdict_and_what_belongs_to_it(sentence: Sentence) -> None:
    """A test for what is same or better, words for what is better or not ours; never two verdicts."""
    assert len(sentence.verdicts) == 1
    assert bool(sentence.shown) == sentence.ours
    assert sentence.remarks or sentence.verdicts == {"same"}
    assert not any(remark.startswith(("same", "better", "not ours")) for remark in sentence.remarks)
    assert sentence.said.endswith(".")


def check(shown: Shown) -> None:
    """Make sure that a test is there, always runs, and reads its runs as the table says."""
    module = import_module(f"tests.{shown.module}")
    function = getattr(module, shown.function)
    assert not {mark.name for mark in marked(function) + marked(module)} & LEFT_OUT
    asked = marks(function) | marks(module) | set(inspect.signature(function).parameters)
    assert shown.both == ("read_mode" in asked)
    assert shown.both <= inspect.iscoroutinefunction(function)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda one: one.function)
def test_what_shows_a_sentence_is_a_test_and_reads_both_ways_where_it_says_so(shown: Shown) -> None:
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
def test_a_test_that_is_not_there_or_does_not_always_run_is_noticed(shown: Shown, error: type[Exception]) -> None:
    with pytest.raises(error):
        check(shown)


@pytest.mark.full
def long() -> None:
    """What a test that is left out by default looks like."""


def test_every_test_here_shows_a_sentence() -> None:
    listed = {(one.module, one.function) for one in SHOWN}
    for file in HERE.glob("test_*.py"):
        if file.stem != "test_table":
            module = import_module(f"tests.behaviours.{file.stem}")
            found = {(f"behaviours.{file.stem}", name) for name in vars(module) if name.startswith("test_")}
            assert found <= listed


def test_most_is_the_same_and_what_is_not_ours_is_little() -> None:
    counted = Counter(next(iter(sentence.verdicts)) for sentence in TABLE)
    assert counted["not ours"] == 3
    assert counted["same"] > counted["better"]
