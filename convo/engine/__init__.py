"""Performs what the decisions ask for.

Read `chat` first: one conversation while it is open, and the order in which things become
durable. `opening` finds or begins it, `calling` sends a request and sends it again where that is
safe, `owner_tail` reads what the owner has, `replay_file` and `lease` touch the disk and the other
processes.

Runs of agents stand on the same turns: read `running` for what may be done with one, `performing` for
its loop, `run_keeping` for what each step makes durable, `standing` for what its model sees in place of
the conversation, `conduct` for what an owner does not allow.
"""
