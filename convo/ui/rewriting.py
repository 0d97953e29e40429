"""A call's arguments in the person's own editor."""

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from convo.errors import Usage


def in_an_editor(arguments: str) -> str:
    """The arguments as somebody left them. raises: Usage  there is no editor, or it failed"""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise Usage("EDITOR is not set, so nothing can be edited", hint="EDITOR=nano convo ...")
    with tempfile.TemporaryDirectory(prefix="convo-") as folder:
        draft = Path(folder) / "arguments.json"
        draft.write_text(pretty(arguments) + "\n", encoding="utf-8")
        try:
            done = subprocess.run([*command, str(draft)], check=False).returncode  # noqa: S603  their own editor
        except OSError as wrong:
            raise Usage(f"{command[0]} cannot be run: {(wrong.strerror or str(wrong)).lower()}") from wrong
        if done:
            raise Usage(
                f"{command[0]} ended with {done}, so nothing was changed", hint="leave the editor without an error"
            )
        return draft.read_text(encoding="utf-8").strip()


def pretty(arguments: str) -> str:
    """Arguments as they are read and edited: JSON a member a line, anything else as it is."""
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments
