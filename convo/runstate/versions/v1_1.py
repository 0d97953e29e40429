"""1.1: the paused run of an agent used as a tool is stored (first written by 0.9.1)."""

from convo.runstate.format import Version

VERSION = Version(
    "1.1",
    "0.9.1",
    "an agent used as a tool keeps its own paused run; readers take older labels from here on",
    keys=("last_processed_response.functions[].agent_run_state",),
)
