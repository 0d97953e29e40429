"""The state machine of an agent run: read `state` for its values and `machine` for `step_run`."""
