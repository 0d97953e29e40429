"""Support for tests of `convo doctor`: run checks and read their results."""

from typing import Any

from tests.command_runner import Convo


def run_check(convo: Convo, name: str, *argv: str) -> dict[str, Any]:
    """Run one check and return its result; assert the exit code that belongs to its level."""
    got = convo("doctor", name, "--json", *argv)
    (one,) = got.json()["checks"]
    assert (got.exit, got.err) == (int(one["level"] == "fault"), "")
    assert one["next"] or one["level"] == "ok"
    return dict(one)


def check_levels(convo: Convo, *argv: str) -> dict[str, str]:
    return {one["name"]: one["level"] for one in convo("doctor", "--json", *argv).json()["checks"]}
