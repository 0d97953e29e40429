"""The page of the Agents SDK, from the rows in `tests/cli/sdk_parameters.py`.

python -m tests.docs.agents > .github/AGENTS.md
"""

import sys
from collections.abc import Iterator

from tests.cli.sdk_parameters import TABLES, Row
from tests.command_runner import ROOT
from tests.docs.prose import wrap_prose

PAGE = ROOT / ".github" / "AGENTS.md"

HEAD = """\
# Agents of the Agents SDK

`convo chat --agent FILE.py:NAME` runs an agent of an installed `openai-agents`, with each of the
four owners of the state. `NAME` may also be a function that returns the agent. The session stores
this path: `convo chat -c` and `convo resume` load the agent again, and `--agent` chooses another one.

A call that needs approval pauses the run. Calls of MCP servers need it unless `[mcp.NAME]` says
otherwise. `convo approvals`, `convo resume` and the inspector page decide. The paused run is a
RunState of the SDK, so convo can resume a run that the SDK paused, and the SDK one of convo. A state
of the JavaScript SDK can be inspected and decided here; only the JavaScript SDK can resume it. If
convo is killed, no call is run a second time.

The tables list the public parameters of release 0.24. **same**: convo sends the requests that the SDK
sends. **refused**: an error names the parameter before any request. `tests/cli/test_sdk_parameters.py`
runs every row with both programs on one server; `python -m tests.docs.agents > .github/AGENTS.md`
writes this page.

`--run-config FILE.py:NAME` names a `RunConfig`, or a dict of arguments of `Runner.run`, such as
`{"hooks": LogHooks(), "run_config": RunConfig(...)}`. An option of the command takes precedence.

An agent that brings a model object, or has the model of a `model_provider` or a default client,
sends its requests through it. Another agent without a model uses the SDK's default model if the
first agent names an OpenAI model, else the first agent's model.

A session remembers `--run-config`, `--sdk-session` and `--context` with its agents, for
`convo chat -c`, `convo next` and `convo resume`; a fork begins without `--sdk-session`. An option
given again replaces its value, and `none` removes it. In a paused run the values of a mapping that
its state saved take precedence; `--context` given to `convo resume` replaces them.

A state has the context as the SDK stores it, in plain text: a mapping, the fields of a dataclass or
a Pydantic model, nothing of another object. `context_serializer` and `context_deserializer` in the
file of the context replace this, and so does a function of the saved values as `--context`.
`convo inspect` and `convo lint` name the secrets in a state.

A run that the SDK finished from its state stays paused here; `convo resume RUN --abort` closes it.

The session of `--sdk-session` receives the input when a run begins and the other items when it is
done, after convo has stored them. Each time it also receives what it lacks of the conversation, as
after a kill. A session that changes its items, such as one of the Conversations API or one that
compacts, receives new items only.

These fields of a request follow the rules of convo: `stream`; `store: false` for a history that the
client stores, with `reasoning.encrypted_content` in `include`; and no empty `tools`.
"""


TOOLS = """\
## Tools that are no functions

The executor that the agent brings performs the calls of `ShellTool`, `LocalShellTool`, `ApplyPatchTool` and
`CustomTool`, with the approvals, the record and the guarantees of other calls; `on_approval` and
`on_approval_request` decide as in the SDK. Refused: `needs_approval` as a function,
`ComputerTool`, `ProgrammaticToolCallingTool`.
"""


def page() -> str:
    """Return the page."""
    return wrap_prose("\n".join([HEAD, *lines(), TOOLS]))


def lines() -> Iterator[str]:
    for table, (rows, _) in TABLES.items():
        results = [row.result for row in rows.values()]
        yield f"## {table}\n\n{results.count('same')} same, {results.count('refused')} refused.\n"
        yield "| parameter | result | |\n|---|---|---|"
        yield from (f"| `{name}` | {row.result} | {describe(row)} |" for name, row in rows.items())
        yield ""


def describe(row: Row) -> str:
    """Return the option that says the parameter, and the note."""
    option = f"`{row.options[0]}`" if row.options else ""
    return "; ".join(filter(None, (option, row.note)))


if __name__ == "__main__":
    sys.stdout.write(page())
