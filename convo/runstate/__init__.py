"""RunState documents of the Agents SDK: read `reader` for validation, `run_state` for the parsed view."""
