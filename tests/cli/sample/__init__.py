"""Sample commands for tests of the command line itself, in a table like that of convo's own commands."""

from types import MappingProxyType

from convo.cli.app import CommandEntry, CommandTable

SAMPLES: CommandTable = MappingProxyType(
    {
        "greet": CommandEntry("Talk", "Say good day to somebody.", "tests.cli.sample.greet"),
        "box": CommandEntry("Talk", "Keep things in a box.", "tests.cli.sample.box"),
        "stumble": CommandEntry("Talk", "End in one of many ways.", "tests.cli.sample.stumble"),
    }
)
