"""1.12: usage includes tokens written to the prompt cache (first written by 0.18.1)."""

from convo.runstate.format import Version

VERSION = Version(
    "1.12",
    "0.18.1",
    "usage tells what was written to the prompt cache",
    keys=(
        "context.usage.input_tokens_details[].cache_write_tokens",
        "context.usage.request_usage_entries[].input_tokens_details.cache_write_tokens",
        "model_responses[].usage.input_tokens_details[].cache_write_tokens",
        "last_model_response.usage.input_tokens_details[].cache_write_tokens",
    ),
)
