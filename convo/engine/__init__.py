"""Performs what the decisions ask for.

Read `chat` first: one conversation while it is open, and the order in which things become
durable. `opening` finds or begins it, `calling` sends a request and sends it again where that is
safe, `owner_tail` reads what the owner has, `replay_file` and `lease` touch the disk and the other
processes.
"""
