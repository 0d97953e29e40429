"""Lint and repair: find state that a server would reject, before it is sent.

Read `rules` first: the table of all rules, each with its check and its fix. Then `model` (`LintView`, `LintIssue`).
"""
