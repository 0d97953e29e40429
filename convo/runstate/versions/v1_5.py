"""1.5: tools are distinguished by namespace, not by name alone (first written by 0.11.0)."""

from convo.runstate.format import Version, expand_item_keys

VERSION = Version(
    "1.5",
    "0.11.0",
    "tools are told apart by namespace, and deferred ones from those in view",
    keys=(
        *expand_item_keys("tool_lookup_key", "tool_namespace", "allow_bare_name_alias"),
        "last_processed_response.functions[].tool.lookupKey",
        "last_processed_response.functions[].tool.namespace",
        "last_processed_response.functions[].tool.qualifiedName",
    ),
)
