"""Run the commands of transcripts, and write the files with the actual output."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli import transcripts
from tests.conftest import home

os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"  # as in tests/conftest.py
for name in sys.argv[1:] or transcripts.NAMES:
    path = transcripts.FOLDER / f"{name}.txt"
    text = path.read_text("utf-8")
    description = text[: text.index("$ ")]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        home.__wrapped__(Path(os.path.realpath(folder)), patch)  # type: ignore[attr-defined]
        shell = transcripts.Shell(name, patch.setenv)
        steps = [shell.run(step) for step in transcripts.read_steps(path)]
    path.write_text(description + "\n\n".join(map(str, steps)) + "\n", "utf-8")
