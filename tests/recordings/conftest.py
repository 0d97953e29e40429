"""Print the table of a replay."""

from collections.abc import Iterator, Mapping

import pytest

TABLE = "table of recorded answers"
"""The property of the test that has the table."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == TABLE and report.when == "call":
                terminalreporter.section("recorded answers")
                for line in table_lines(value):
                    terminalreporter.write_line(line)


def table_lines(vendors: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    heads = next(iter(vendors.values()))
    yield "".join(f"{head:>9}" for head in heads).rjust(18 + 9 * len(heads))
    for vendor, counts in vendors.items():
        yield f"{vendor:18}" + "".join(f"{counts[head]:9}" for head in heads)
