"""Random mutations of the package, and whether a test notices them.

    uv run --with pytest-cov python -m tests.mutations cover FOLDER      # once: which test runs which line
    uv run python -m tests.mutations draw SEED COUNT > sample.json       # without a look at the tests
    uv run --with pytest-cov python -m tests.mutations run FOLDER sample.json

`run` writes a line for each mutation into FOLDER/results.jsonl, and goes on there if it was stopped. A
mutation survives if no test failed among those that run its line, the cheapest first, until the given
seconds of tests are spent. Code that runs in other processes only is not seen: try the tests of its
command before a survivor is believed.
"""
