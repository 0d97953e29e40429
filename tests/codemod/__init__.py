"""Move modules, merge them, and rename their top-level names, with every import rewritten.

`scopes` finds bindings and references in one file; `move` carries out a plan. Both are removed when
the packages have their final names.

    python3.12 -m tests.codemod.move . plan.py
"""
