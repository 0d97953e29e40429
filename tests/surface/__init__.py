"""A tool, not tests of behaviour: comparison of the public surfaces of two revisions.

    python -m tests.surface cc624bc HEAD

Programs, files and other releases depend on the surface: commands and options, settings, exit codes and error codes,
JSON documents and their schemas, HTTP, events, headers, metrics, databases, states of paused runs, and the documented
import paths. Texts for people (help, hints, messages) are not part of it.

`document` defines the form of a surface, `masks` converts values to patterns, `revisions` prepares a revision,
`collect` lists the parts, and `difference` compares two surfaces. Each part is collected through a public interface:
the command line, HTTP, files, tables. The modules here import convo only by the documented paths, so that the modules
of a revision may have any names.
"""
