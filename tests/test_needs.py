"""The report of a test run about the tests that it omitted."""

import pytest

from tests.command_runner import ROOT
from tests.conftest import pytest_xdist_auto_num_workers

SUITE = """
import pytest

def test_plain():
    assert True

@pytest.mark.needs("zsh")
@pytest.mark.parametrize("n", [1, 2])
def test_in_zsh(n):
    assert True

@pytest.mark.full
def test_long():
    assert True

@pytest.mark.browser
def test_of_the_page():
    assert True

@pytest.mark.browser(by_default=True)
def test_of_the_page_in_every_run():
    assert True
"""

QUARTERS = """
import pytest

@pytest.mark.full
@pytest.mark.parametrize("n", range(40))
def test_long(n):
    assert True

@pytest.mark.full(every_commit=True)
def test_without_a_small_sibling():
    assert True
"""

WORKERS = pytest.mark.parametrize("workers", ["0", "2"])


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small separate test suite in an environment without zsh: PATH is empty."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest('pytest_plugins = ("tests.needs",)')
    pytester.makepyfile(SUITE)
    return pytester


@WORKERS
def test_a_run_names_what_it_left_out_and_counts_it(suite: pytest.Pytester, workers: str) -> None:
    result = suite.runpytest_subprocess("-n", workers)
    result.stdout.fnmatch_lines(
        [
            "left out: long variants (run them with -m full): 1 test",
            "left out: more of the inspector page in Chromium (run it with -m browser): 1 test",
            "left out: zsh (install zsh from your system's packages): 2 tests",
            "*2 passed*",
        ],
        consecutive=True,
    )
    assert result.ret == 0


@WORKERS
def test_in_ci_a_missing_part_fails_its_tests(
    suite: pytest.Pytester, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = suite.runpytest_subprocess("-n", workers)
    result.stdout.fnmatch_lines(["*CI must have zsh: install zsh from your system's packages*"])
    result.assert_outcomes(passed=2, errors=2)
    assert result.ret == 1


def test_the_long_ones_run_when_they_are_asked_for(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-n", "0", "-m", "full")
    result.assert_outcomes(passed=1, deselected=5)
    result.stdout.no_fnmatch_line("left out: long*")


def test_a_matrix_runs_with_its_marker_and_names_only_missing_parts(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-n", "0", "-m", "browser")
    result.assert_outcomes(passed=2, deselected=4)
    result.stdout.no_fnmatch_line("left out: *-m *")


def test_each_long_variant_is_drawn_by_one_of_four_commits(suite: pytest.Pytester) -> None:
    suite.makepyfile(QUARTERS)
    names: list[str] = []
    for commit in ("00000000", "00000001", "00000002", "00000003"):
        result = suite.runpytest_subprocess("-n", "0", "-m", "full", "-v", "--quarter", commit)
        passed = [line.split()[0] for line in result.outlines if " PASSED" in line]
        assert any("without_a_small_sibling" in test for test in passed)
        names += [test for test in passed if "test_long[" in test]
    assert len(names) == len(set(names)) == 40


def test_a_test_that_hangs_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("import threading\n\ndef test_hangs():\n    threading.Event().wait()\n")
    result = pytester.runpytest_subprocess("-p", "pytest_timeout", "-o", "timeout=0.2", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*Timeout*0.2*"])
    assert result.ret == 1


def test_a_part_that_nobody_wrote_down_is_an_error(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\n\n@pytest.mark.needs('a pony')\ndef test_ride(): pass\n")
    result = suite.runpytest_subprocess("-n", "0")
    assert result.ret != 0
    assert "a pony" in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 3), (4, 6)])
def test_two_cores_have_three_workers(monkeypatch: pytest.MonkeyPatch, cores: int, workers: int) -> None:
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert pytest_xdist_auto_num_workers() == workers


def test_the_variable_of_xdist_overrides_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "1")
    assert pytest_xdist_auto_num_workers() is None
