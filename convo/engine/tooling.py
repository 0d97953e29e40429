"""One call of a tool: its arguments read, its time measured, its failure put into words.

What a model is told of a tool that raised or took too long is the tool's own affair; where it has
no words for that, the run fails. A thread cannot be stopped: what runs there past its time may
still do something, and nobody hears of it.
"""

import asyncio
from functools import partial
from typing import Any

from convo.engine.theirs import came_of, outcome, spoken
from convo.errors import NotCanonical, RunFailed
from convo.items import Json, hash_of
from convo.run import Call
from convo.tools import Context, Tool, Wrong, output_text, read_arguments, timed_out

FAILED = "tool_failed"
TIMED_OUT = "tool_timeout"


async def carried_out(call: Call, context: Context) -> Json:
    """What the model is told of `call`. raises: RunFailed  the tool has no words for what went wrong"""
    tool = call.tool
    assert tool
    arguments = read_arguments(tool, call.arguments)
    if tool.record is None:
        given: dict[str, Any] = {}
        first: tuple[Any, ...] = (context, call.arguments)
    elif isinstance(arguments, Wrong):
        return arguments.words
    else:
        given, first = arguments, (context,) if tool.takes_context else ()
    try:
        async with asyncio.timeout(tool.timeout_s):
            came = await outcome(partial(tool.run, *first, **given), thread=True)
    except TimeoutError:
        return _late(tool)
    if came.raised is None:
        came = came_of(
            tool.serialize or output_text, came.value
        )  # an object of theirs may raise when it is put into words
    if came.raised is not None:
        return worded(tool, came.raised)
    return _sayable(tool, came.value)


def _late(tool: Tool) -> Json:
    assert tool.timeout_s is not None
    words = timed_out(tool.title, tool.timeout_s)
    if tool.on_timeout == "fail":
        raise RunFailed(words.rstrip("."), code=TIMED_OUT)
    return words


def worded(tool: Tool, raised: BaseException) -> Json:
    """The tool's own words for a failure. raises: RunFailed  it has none, or what makes them raised"""
    failed = f"tool {tool.title!r} raised {spoken(raised)}"
    words = tool.failure
    if words is None or not isinstance(raised, Exception):
        raise RunFailed(failed, code=FAILED) from raised
    came = came_of(lambda: output_text(words(raised)))
    if came.raised is not None:
        raise RunFailed(f"{failed}, and its words for that {spoken(came.raised)}", code=FAILED) from came.raised
    return came.value


def _sayable(tool: Tool, output: Json) -> Json:
    try:
        hash_of({"output": output})
    except NotCanonical as wrong:
        return worded(tool, wrong)
    return output
