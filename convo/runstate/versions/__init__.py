"""The schema versions of RunState, oldest first.

A version that only adds members is a row of `VERSIONS`; one that also changes the meaning of older members is a module
(`v1_15`). A published version is never changed: files of it exist. 1.3, 1.7, 1.8, 1.14, 1.19 and 1.20 were never
published.
"""

from convo.history.items import Json
from convo.runstate.format import RecordSlots, Version, expand_item_keys
from convo.runstate.identity import StateCall
from convo.runstate.versions import v1_0, v1_10, v1_13, v1_15, v1_18, v1_21

VERSIONS: tuple[Version, ...] = (
    v1_0.VERSION,
    Version(
        "1.1",
        "0.9.1",
        "an agent used as a tool has its own paused run; readers accept older labels from here on",
        keys=("last_processed_response.functions[].agent_run_state",),
    ),
    Version(
        "1.2",
        "0.9.2",
        "whether reasoning items are sent again with their ids",
        keys=("reasoning_item_id_policy",),
    ),
    Version(
        "1.4",
        "0.10.2",
        "a model response has the id of its request",
        keys=("model_responses[].request_id", "last_model_response.request_id"),
    ),
    Version(
        "1.5",
        "0.11.0",
        "tools are identified by namespace, and deferred tools are marked",
        keys=(
            *expand_item_keys("tool_lookup_key", "tool_namespace", "allow_bare_name_alias"),
            "last_processed_response.functions[].tool.lookupKey",
            "last_processed_response.functions[].tool.namespace",
            "last_processed_response.functions[].tool.qualifiedName",
        ),
    ),
    Version(
        "1.6",
        "0.12.1",
        "a rejection has a message for the model",
        keys=("context.approvals.*.rejection_messages", "context.approvals.*.sticky_rejection_message"),
    ),
    Version(
        "1.9",
        "0.14.0",
        "agents with the same name have identities; calls have the origin of their tool; custom tools and sandboxes",
        keys=(
            "current_agent.identity",
            *expand_item_keys("agent.identity", "source_agent.identity", "target_agent.identity", "tool_origin"),
            "last_processed_response.custom_tool_actions",
            "generated_prompt_cache_key",
            "sandbox",
        ),
    ),
    v1_10.VERSION,
    Version(
        "1.11",
        "0.17.6",
        "a tool's output can have data that the model does not receive",
        keys=expand_item_keys("custom_data"),
    ),
    Version(
        "1.12",
        "0.18.1",
        "usage has the tokens written to the prompt cache",
        keys=(
            "context.usage.input_tokens_details[].cache_write_tokens",
            "context.usage.request_usage_entries[].input_tokens_details.cache_write_tokens",
            "model_responses[].usage.input_tokens_details[].cache_write_tokens",
            "last_model_response.usage.input_tokens_details[].cache_write_tokens",
        ),
    ),
    v1_13.VERSION,
    v1_15.VERSION,
    Version("1.16", "0.21.1", "approving one call overrides the permanent rejection of its tool; no new key"),
    Version(
        "1.17",
        "0.22.1",
        "pending session writes; the items of the current response; runs that cannot be resumed",
        keys=("current_response_generated_item_ownership", "pending_session_write", "terminal_unrecoverable"),
    ),
    v1_18.VERSION,
    v1_21.VERSION,
)

NEWEST_VERSION = VERSIONS[-1]
LABELS = tuple(version.label for version in VERSIONS)
VERSION_BY_LABEL = {version.label: version for version in VERSIONS}

LEDGER_SINCE = VERSION_BY_LABEL["1.15"]
"""The first label in which a decision counts only with its ledger entry."""

REJECTION_MESSAGE_SINCE = VERSION_BY_LABEL["1.6"]
"""The first label in which a rejection can have a message for the model."""

NESTED_STATE_SINCE = VERSION_BY_LABEL["1.1"]
"""The first label that stores the state of an agent used as a tool."""

UNLIMITED_TURNS_SINCE = VERSION_BY_LABEL["1.10"]
"""The first label in which a run can have no limit of turns."""


def list_versions_up_to(version: Version) -> tuple[Version, ...]:
    """Return `version` and all older ones, newest first."""
    return VERSIONS[VERSIONS.index(version) :: -1]


def list_versions_after(version: Version) -> tuple[Version, ...]:
    """Return the versions newer than `version`, oldest first."""
    return VERSIONS[VERSIONS.index(version) + 1 :]


def find_record_slots(version: Version, document: Json, call: StateCall, *, always: bool) -> RecordSlots:
    """Return the places of a decision on `call` in this label, by the newest version with a rule for such calls."""
    results = (candidate.find_slots(document, call, always) for candidate in list_versions_up_to(version))
    return next(result for result in results if result is not None)
