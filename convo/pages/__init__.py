"""Pages for a browser: nothing in them comes from anywhere else.

`conversation` is one history to be mailed and kept, in a single file without a script. `inspector` is
the page that shows who owns what: its files stand in `static`, and `inspected` is what it is given.
"""
