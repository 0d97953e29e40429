"""RunState documents of the Agents SDK: read `reader` for what is accepted, `state` for the parsed view."""
