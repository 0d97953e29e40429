"""Programs that send a request, as the inspector page and `convo next` write them, run as their reader runs them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.needs import NODE_MODULES

FILE_NAMES = {"curl": "request.sh", "python": "request.py", "javascript": "request.mjs"}
COMMANDS = {"curl": "/bin/sh", "python": sys.executable, "javascript": "node"}


def run_program(language: str, code: str, folder: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run the code in `folder` with only these variables and PATH."""
    folder.mkdir(exist_ok=True)
    if language == "javascript" and not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(NODE_MODULES)
    (folder / FILE_NAMES[language]).write_text(code, encoding="utf-8")
    return subprocess.run(
        [COMMANDS[language], FILE_NAMES[language]],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
