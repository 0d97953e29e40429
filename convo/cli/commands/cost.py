"""`convo cost`: its arguments, options and help."""

from typing import get_args

import typer

from convo.cli.app import App, HandleArgument, JsonObjectOption, ProviderOption, get_root_options, value_option
from convo.errors import InvalidUsage
from convo.prompt_cache import Grouping

app = App()

EXAMPLES = """
Examples:
  convo cost @last                         the items, tools and instructions that cost most
  convo cost monads -n 0                   all of them
  convo cost monads --by tool              each tool: definition, calls and outputs
  convo cost @recorded --by model          the requests by model
  convo cost monads --by day --json        for a program

first: the first request that had a part as input. cached, uncached: later requests that sent it again. output: the
response that produced it. missed: cache misses that a change of it caused; the other columns include them. hit rate: of
an agent, a model or a day, the cached part of the input tokens. Days are in UTC.
"""

GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)


@app.command(epilog=EXAMPLES)
def cost_command(
    ctx: typer.Context,
    handle: HandleArgument,
    by: str = value_option(
        "--by", "GROUP", f"Group by {', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}.", default="item"
    ),
    limit: int = value_option("-n --limit", "N", "Number of the most expensive rows; 0 for all.", default=20, min=0),
    provider: ProviderOption = None,
    as_json: JsonObjectOption = False,
) -> None:
    """Show what each item, tool and file of a conversation cost, over all requests."""
    if by not in GROUPINGS:
        raise InvalidUsage(f"--by accepts {', '.join(GROUPINGS)}, not {by!r}", hint="convo cost --help")
    from convo.cli.cost import print_cost
    from convo.cli.resolve import LookupOptions

    lookup = LookupOptions(get_root_options(ctx).config, provider)
    print_cost(handle, lookup, by, limit or None, as_json=as_json)
