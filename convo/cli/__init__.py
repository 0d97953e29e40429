"""The command line: read arguments, call, print, exit.

In reading order: `commands` lists what there is, `app` finds and runs one, `shape` gives every
command the same look, `failures` turns what went wrong into text and an exit code, which `exits`
explains, `completions` and `suggesting` answer shells, `manual` is the man page. Every other module
here is one command of its own, or what a command does once its arguments are read.

What a command prints with `--json` has a schema in `convo/schemas` and a row in `convo.cli.schema`;
a test tries every one of them, and fails at a key that no schema has.

A new command is a module and a row. The module makes `app = App()` (from `convo.cli.shape`) and
puts its function, or several for a group, on it:

    app = App()

    @app.command(epilog=EXAMPLES)
    def stat(ctx: typer.Context, handle: ...) -> None:
        '''Count what a conversation holds.'''
        settings = load(call_of(ctx).config)

The row in `convo.cli.commands` repeats the first line of that docstring, so that `convo --help`
imports no command; a test holds the two together. A command prints its answer and returns; it
raises a `ConvoError`, or `typer.Exit(code)` for an outcome that is no error.
"""
