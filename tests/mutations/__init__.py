"""A tool, not tests of behaviour: random mutations of the package, and whether a test fails for them.

    uv run --python 3.13 python -m tests.mutations cover FOLDER    # once: the tests that run each line
    uv run python -m tests.mutations draw SEED COUNT > sample.json   # independent of the tests
    uv run python -m tests.mutations run FOLDER sample.json

`run` appends a line for each mutation to FOLDER/results.jsonl, and continues there after an interruption.
A mutation survives if no test failed among those that run its line, the fastest first, until the time
budget is used up; with --all-tests, if none of them failed. Commands that a test starts as forks count as
its lines. Code that runs only in new interpreters is not recorded: run the tests of its command before
accepting a survivor.
"""
