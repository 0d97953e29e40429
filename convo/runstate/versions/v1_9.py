"""1.9: agents of one name are distinguished, and a call has the origin of its tool (first written by 0.14.0)."""

from convo.runstate.format import Version, expand_item_keys

VERSION = Version(
    "1.9",
    "0.14.0",
    "agents of one name are told apart; calls say where their tool came from; custom tools and sandboxes",
    keys=(
        "current_agent.identity",
        *expand_item_keys("agent.identity", "source_agent.identity", "target_agent.identity", "tool_origin"),
        "last_processed_response.custom_tool_actions",
        "generated_prompt_cache_key",
        "sandbox",
    ),
)
