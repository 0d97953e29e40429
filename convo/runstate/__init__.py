"""RunState documents of the Agents SDK: read `reader` for validation, `state` for the parsed view."""
