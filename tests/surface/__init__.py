"""The public surface of two revisions, compared.

    python -m tests.surface cc624bc HEAD

The surface is everything that programs, files and other releases rely on: commands and options, settings, exit codes
and error codes, JSON documents and their schemas, HTTP, events, headers, metrics, databases, states of paused runs, and
the documented import paths. Sentences for people (help, hints, messages) are not part of it.

Read `document` for the form of a surface, `masks` for how a value becomes a pattern, `revisions` for how a revision is
made ready, and `collect` for the list of the parts; `difference` compares two surfaces. A part is collected through a
public door: the command line, HTTP, files, tables. Nothing here imports convo, except by the documented paths, so that
the modules of a revision may have any names.
"""
