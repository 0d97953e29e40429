"""What `convo` can do, without importing any of it.

A row is a command's name, the module that holds it and the one line that `convo --help` shows.
The order is the order of the help. Only the command that was asked for is imported.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Row(NamedTuple):
    """Where a command stands: `module` has an `App` named `app`; `summary` is its first line."""

    module: str
    summary: str


Table = Mapping[str, Row]

COMMANDS: Table = MappingProxyType(
    {
        "chat": Row("convo.cli.chat", "Talk to a model, with the state held where you choose."),
        "inspect": Row("convo.cli.inspect", "Show who owns a conversation and what each request sent."),
        "next": Row("convo.cli.next", "Show the exact next request, and what its owner will put before it."),
        "diff": Row("convo.cli.diff", "Find where two histories, or two requests, part."),
        "convert": Row("convo.cli.convert", "Hand a conversation to another owner."),
        "export": Row("convo.cli.export", "Write a conversation into a file."),
        "import": Row("convo.cli.import_", "Read conversations from a file."),
        "lint": Row("convo.cli.lint", "Find state that will be refused, before it is sent."),
        "repair": Row("convo.cli.repair", "Write a valid history beside a broken one."),
        "race": Row("convo.cli.race", "Ask the same under all four owners, and compare what each took."),
        "compact": Row("convo.cli.compact", "Let a shorter history stand in place of a conversation's."),
        "serve": Row("convo.cli.serve", "Serve the Responses API over HTTP, in front of any model."),
        "resume": Row("convo.cli.resume", "Decide on the calls that a paused run waits for, and go on with it."),
        "approvals": Row("convo.cli.approvals", "List and decide what paused runs wait for."),
        "sessions": Row("convo.cli.sessions", "List, search, rename and remove conversations."),
        "store": Row("convo.cli.store", "Check, back up, recover, migrate, measure and prune the database."),
        "models": Row("convo.cli.models", "List what can be used, and fetch the built-in model."),
        "config": Row("convo.cli.config", "Show what is set and by whom, and change it."),
        "schema": Row("convo.cli.schema", "Print the JSON Schema of what a command prints as JSON."),
        "doctor": Row("convo.cli.doctor", "Find out what is wrong, and how to mend it."),
    }
)
