"""What a model's answer asks for: calls of tools, handoffs, approvals of hosted tools, or nothing more.

Fail closed: a call of a tool that was not offered, of a kind that nobody here performs, or with an
id that another call of the answer has, fails the run before anything was started. Arguments that
do not fit are the model's mistake and its to mend: that call has its output at once.
"""

from collections.abc import Iterator
from dataclasses import replace

from convo.items import Item, Json, call_id, is_assistant, is_call, is_output, kind, text
from convo.run.events import Answered
from convo.run.state import Call, Failure, Run, Stage
from convo.tools import NOT_APPROVED, Lookup, Tool, Wrong, lookup_of, read_arguments

HOSTED_REQUEST = "mcp_approval_request"

BEHAVIOR = "model_behavior"

OUTCOME_UNKNOWN = "The tool was started, and its outcome is unknown."
"""What a model is told of a call whose outcome nobody knows and that a person does not want run again."""


def calls_of(run: Run, answer: Answered) -> tuple[Call, ...] | Failure:
    """The calls of an answer, in its order, or why the run cannot go on with them."""
    calls: dict[str, Call] = {}
    done = {call_id(item) for item in answer.output if is_output(item)}  # by the provider, as of its own shell
    for item in answer.output:
        if (not is_call(item) and kind(item) != HOSTED_REQUEST) or (is_call(item) and call_id(item) in done):
            continue
        found = _call(run, answer, item)
        if isinstance(found, Failure):
            return found
        if found.id in calls:
            return Failure(BEHAVIOR, f"Two calls have the id {found.id}")
        calls[found.id] = found
    return tuple(calls.values())


def words_of(answer: Answered) -> str | None:
    """The words of an answer's last message; None where it has none."""
    last = next((item for item in reversed(answer.output) if is_assistant(item)), None)
    return None if last is None else _text(last)


def used_in(answer: Answered) -> Iterator[str]:
    """The names of the tools that an answer used, hosted ones and handoffs among them."""
    for item in answer.output:
        if kind(item) == "function_call":
            found = answer.tools.find(item)
            yield found.title if found else str(item.get("name"))
        elif kind(item).endswith("_call") and kind(item) != "tool_search_call":
            yield kind(item).removesuffix("_call")


def output_item(call: Call, output: Json) -> Item:
    """The item that answers a function's call; a call that a program made says so, and its output as well."""
    caller = {"caller": call.item["caller"]} if call.item.get("caller") else {}
    return {"type": "function_call_output", "call_id": call.id, "output": output, **caller}


def turned_down(call: Call, reason: str | None) -> Item:
    """The item that answers a function's call that a person did not let run, or not again."""
    if call.stage is Stage.UNKNOWN:
        return output_item(call, f"{OUTCOME_UNKNOWN} {reason}" if reason else OUTCOME_UNKNOWN)
    return output_item(call, reason or NOT_APPROVED)


def verdict_item(call: Call, approve: bool, reason: str | None) -> Item:
    """The item that answers a hosted tool's request."""
    said = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": approve}
    return {**said, "reason": reason} if reason else said


def _call(run: Run, answer: Answered, item: Item) -> Call | Failure:
    if kind(item) == HOSTED_REQUEST:
        return _hosted(run, item)
    named = call_id(item)
    if named is None:
        return Failure(BEHAVIOR, "A call has no id")
    if kind(item) != "function_call":
        return Failure("unsupported", f"Nothing here performs {kind(item)}")
    name, written = str(item.get("name")), str(item.get("arguments") or "")
    if not item.get("namespace") and name in answer.handoffs:
        to = answer.handoffs[name]
        run.graph[to]  # a handoff to nobody is told of here
        return Call(item, named, Stage.HANDOFF, ("handoff", name), to=to, arguments=written)
    tool = answer.tools.find(item)
    if tool is None:
        return Failure(BEHAVIOR, f"Tool {_name(item)} not found in agent {run.current.name}")
    return cleared(run, Call(item, named, Stage.READY, lookup_of(tool), tool, arguments=written))


def cleared(run: Run, call: Call) -> Call:
    """`call` as far as it gets without a person: refused for its arguments, free to run, or to be approved."""
    tool = call.tool
    assert tool
    arguments = read_arguments(tool, call.arguments)
    if isinstance(arguments, Wrong) and tool.record is not None:
        return replace(call, stage=Stage.DONE, output=output_item(call, arguments.words))
    return replace(call, stage=_stage(run, call.lookup, tool, fits=not isinstance(arguments, Wrong)))


def _stage(run: Run, lookup: Lookup, tool: Tool, *, fits: bool) -> Stage:
    """A rejection for good is put to the person no more than an approval; the moves see to its output."""
    if tool.needs_approval is False:
        return Stage.READY
    if run.always.get((run.agent, lookup)):
        return Stage.READY
    return Stage.JUDGING if callable(tool.needs_approval) and fits else Stage.WAITING


def _hosted(run: Run, item: Item) -> Call | Failure:
    named, server, name = (item.get(field) for field in ("id", "server_label", "name"))
    if not (isinstance(named, str) and isinstance(server, str) and isinstance(name, str)):
        return Failure(BEHAVIOR, "A hosted tool's request for approval does not say which tool, or has no id")
    call = Call(item, named, Stage.WAITING, ("mcp", server, name), arguments=str(item.get("arguments") or ""))
    always = run.always.get((run.agent, call.lookup))
    if always is None:
        return call
    return replace(call, stage=Stage.DONE, output=verdict_item(call, always, run.reasons.get((run.agent, call.lookup))))


def _name(item: Item) -> str:
    space = item.get("namespace")
    return f"{space}.{item.get('name')}" if space and space != item.get("name") else str(item.get("name"))


def _text(message: Item) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if isinstance(part, dict) and part.get("type") == "output_text"]
    return "".join(str(part.get("text") or "") for part in parts) or text(message)
