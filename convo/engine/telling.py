"""What a run tells beside the events of its model: events of convo's own.

convo.started       run, agent                                   a run began, or goes on
convo.tool_started  call_id, tool, arguments, agent              its start is durable
convo.tool_output   call_id, tool, output, agent                 its result is durable
convo.handoff       call_id, source, target                      identities of agents
convo.guardrail     side, name, reason                           it tripped; `convo.failed` follows
convo.warning       message                                      what a person should know
convo.paused        run, pending                                 the calls that wait, each as `waiting` says
convo.finished      run, agent, output                           the end, with the final value
convo.failed        run, code, message                           the end; the error is raised after it
"""

from convo.items import Event, Json
from convo.run import Call, Failure, Run, Stage


def told(what: str, **fields: Json) -> Event:
    return {"type": f"convo.{what}", **fields}


def title(call: Call) -> str:
    """A call's tool as a person knows it."""
    return call.tool.title if call.tool else ".".join(call.lookup[1:])


def started(call: Call, agent: str) -> Event:
    return told("tool_started", **_named(call, agent), arguments=call.arguments)


def output(call: Call, agent: str) -> Event:
    return told("tool_output", **_named(call, agent), output=(call.output or {}).get("output"))


def waiting(call: Call, agent: str) -> dict[str, Json]:
    """A call that waits for a person. unknown: it had started, and nobody knows what came of it"""
    return {**_named(call, agent), "arguments": call.arguments, "unknown": call.stage is Stage.UNKNOWN}


def paused(run: Run, run_id: str) -> Event:
    return told("paused", run=run_id, pending=[waiting(call, agent) for agent, call in run.waiting])


def failed(failure: Failure, run_id: str) -> Event:
    return told("failed", run=run_id, code=failure.code, message=failure.message)


def _named(call: Call, agent: str) -> dict[str, Json]:
    return {"call_id": call.id, "tool": title(call), "agent": agent}
