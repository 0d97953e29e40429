"""The command line: `commands` has the arguments of each command, the module of the same name its implementation.

Read `app` first (command table, help, errors), then `commands.chat` and `chat`. `deps` opens stores and endpoints.
"""
