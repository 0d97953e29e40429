"""Sample commands for tests of the command line itself, in a table like that of convo's own commands."""

from types import MappingProxyType

from convo.cli.app import CommandEntry, CommandTable

SAMPLES: CommandTable = MappingProxyType(
    {
        "greet": CommandEntry("Talk", "tests.cli.sample.greet", "Say good day to somebody."),
        "box": CommandEntry("Talk", "tests.cli.sample.box", "Keep things in a box."),
        "stumble": CommandEntry("Talk", "tests.cli.sample.stumble", "End in one of many ways."),
    }
)
