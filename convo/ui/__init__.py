"""What a person sees and types in a terminal.

`answer` prints an answer while it comes, `receipt` says in one line what a turn cost, `prompt`
reads lines, `commands` is the table of slash commands, `conversing` the loop around them.
"""
