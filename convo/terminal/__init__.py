"""Terminal user interface: answers, prompts and the views of every command.

Read `terminal` first (widths, styles, escaping), then `prompt` (the input of a chat); its loop is `convo.cli.repl`.
A view is a function from values to lines; it reads no store and sends no request.
Text from models, files and other clients is escaped before it is written to a terminal.
"""
