"""The command line: read arguments, call, print, exit.

In reading order: `commands` lists what there is, `app` finds and runs one, `shape` gives every
command the same look and `options` what they take alike, `wiring` opens what they need, `saying` is
their two streams, `failures` turns what went wrong into text and an exit code, which `exits`
explains. `completions` and `suggesting` answer shells, `manual` is the man page.

A command is a module of its name: its arguments, and nothing else, so that its help imports little.
What it does stands in others, which it imports when it is called:

    chat        `talking`; `desk` opens the conversation, from where `forking` says; at the prompt
                `at_prompt`, `changing`, `standing`, `offering` and `shortening`
    of agents   `run_flags`, `loading` (from FILE.py:NAME to agents) and `apart` (what their code prints),
                `conduct`, `running`, `pauses`; `paused_files` is what they leave, until its session goes
    inspect     `known` (from a handle to what is known), `forms`, `inspecting_page`, `watching`; `states`
                for paused runs
    next        `upcoming`, and `upcoming_run` where agents answer
    diff        `comparing`
    convert     `converting`
    compact     `compacting`
    race        `racing`
    export      `exporting`, `exporting_runs`; `redacting` hides secrets there and in convert
    import_     `importing`
    lint        `subject` (from a handle to a history), `linting`
    repair      `repairing`
    resume      `resuming` decides for others to go on, `going_on` goes on by `verdicts`; `choosing`, `keys`
    approvals   `inbox`
    sessions    `records`
    store       `storing`
    serve       `serving`
    config      `configuring`, `keeping_keys`
    models      `providers`, `fetching`
    doctor      `checkup`: `looking` and `looking_models` see, `judging` and `judging_store` judge

`schema` is short enough to do its work itself.

What a command prints with `--json` has a schema in `convo/schemas` and a row in `convo.cli.schema`;
a test tries every one of them, and fails at a key that no schema has.

A new command is a module and a row. The module makes `app = App()` (from `convo.cli.shape`) and
puts its function, or several for a group, on it:

    app = App()

    @app.command(epilog=EXAMPLES)
    def stat(ctx: typer.Context, handle: Handle) -> None:
        '''Count what a conversation holds.'''
        settings = load(call_of(ctx).config)

The row in `convo.cli.commands` repeats the first line of that docstring, so that `convo --help`
imports no command; a test holds the two together. A command prints its answer and returns; it
raises a `ConvoError`, or `typer.Exit(code)` for an outcome that is no error.
"""
