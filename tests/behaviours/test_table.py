"""The table has a verdict for every sentence, and existing tests show each behaviour."""

import inspect
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.table import ListedTest, load_sentences

TABLE = load_sentences()
LISTED_TESTS = sorted(
    {test for sentence in TABLE for test in sentence.tests}, key=lambda test: (test.module, test.function)
)
FOLDER = Path(__file__).parent


OPTIONAL_MARKS = {"full", "skip", "skipif", "xfail"}
"""Marks of tests that may be omitted or may fail."""


def marks_of(target: Any) -> list[Any]:
    """The marks of a test or a module."""
    marks = getattr(target, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]


def fixtures_in_marks(target: Any) -> set[str]:
    """The fixtures that a test or a module requests with a mark."""
    return {name for mark in marks_of(target) for name in mark.args if isinstance(name, str)}


def test_the_table_has_118_numbered_sentences() -> None:
    assert [sentence.number for sentence in TABLE] == list(range(1, 119))


def test_a_sentence_has_one_verdict_with_its_tests_or_remarks() -> None:
    """Only "same" and "better" have tests, only "same" may lack a remark, and no sentence has two verdicts."""
    for sentence in TABLE:
        assert len(sentence.verdicts) == 1
        assert bool(sentence.tests) == sentence.is_supported
        assert sentence.remarks or sentence.verdicts == {"same"}
        assert not any(remark.startswith(("same", "better", "unsupported")) for remark in sentence.remarks)
        assert sentence.text.endswith(".")


def check_listed_test(listed: ListedTest) -> None:
    """Assert that a test exists, always runs, and uses the read modes that the table lists."""
    module = import_module(f"tests.{listed.module}")
    function = getattr(module, listed.function)
    assert not {mark.name for mark in marks_of(function) + marks_of(module)} & OPTIONAL_MARKS
    fixtures = fixtures_in_marks(function) | fixtures_in_marks(module) | set(inspect.signature(function).parameters)
    assert listed.both_modes == ("read_mode" in fixtures)
    assert listed.both_modes <= inspect.iscoroutinefunction(function)


def test_each_listed_test_always_runs_and_uses_both_read_modes_where_the_table_says_so() -> None:
    for listed in LISTED_TESTS:
        check_listed_test(listed)


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        (ListedTest("same", "behaviours.test_deltas", "test_of_nothing", True), AttributeError),
        (ListedTest("same", "behaviours.test_nothing", "test_of_nothing", True), ImportError),
        (replace(LISTED_TESTS[0], both_modes=not LISTED_TESTS[0].both_modes), AssertionError),
        (ListedTest("same", "behaviours.test_table", "function_with_full_mark", False), AssertionError),
    ],
)
def test_a_listed_test_that_is_missing_or_does_not_always_run_is_an_error(
    listed: ListedTest, error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_listed_test(listed)


@pytest.mark.full
def function_with_full_mark() -> None:
    """A function with the mark of a test that a default run omits."""


def test_the_table_lists_every_test_of_this_folder() -> None:
    listed = {(test.module, test.function) for test in LISTED_TESTS}
    for file in FOLDER.glob("test_*.py"):
        if file.stem != "test_table":
            module = import_module(f"tests.behaviours.{file.stem}")
            found = {(f"behaviours.{file.stem}", name) for name in vars(module) if name.startswith("test_")}
            assert found <= listed


def test_three_sentences_are_unsupported_and_most_others_are_the_same() -> None:
    counts = Counter(next(iter(sentence.verdicts)) for sentence in TABLE)
    assert counts["unsupported"] == 3
    assert counts["same"] > counts["better"]
