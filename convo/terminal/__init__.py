"""Terminal user interface: answers, prompts, the REPL and the views of every command.

Read `repl` first (the loop of an interactive chat), then `terminal` (widths, styles, tables, escaping).
A view is a function from values to lines; it reads no store and sends no request.
Text from models, files and other clients is escaped before it is written to a terminal.
"""
