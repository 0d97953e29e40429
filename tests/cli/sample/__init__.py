"""Commands for the tests of the shell itself, listed in a table as convo's own are."""

from types import MappingProxyType

from convo.cli.commands import Row, Table

SAMPLES: Table = MappingProxyType(
    {
        "greet": Row("tests.cli.sample.greet", "Say good day to somebody."),
        "box": Row("tests.cli.sample.box", "Keep things in a box."),
        "stumble": Row("tests.cli.sample.stumble", "End in one of many ways."),
    }
)
