"""Recorded answers of real model servers, replayed through `convo serve` and `convo tap`.

`archive` reads an archive of recordings, `upstream` sends the recorded bodies, `replay` sends every recording in every
way that fits it, `answers` compares what convo made of one with its expectation, `table` counts the outcomes. The
archive is the data of others and not a part of the project: `CONVO_TEST_RECORDINGS` names the file. `table.json` has
the counts of the last replay, for the page of clients.
"""

from pathlib import Path

TABLE = Path(__file__).with_name("table.json")
