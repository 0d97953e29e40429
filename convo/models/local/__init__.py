"""Models that run on this machine: the built-in one, and any GGUF file of the user's.

Read `weights` for where they come from, `child` for the process that runs them, `engine` for how
it is started, reached and stopped, and `model` for how it answers asks.
"""
