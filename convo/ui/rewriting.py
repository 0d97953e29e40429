"""A call's arguments in the person's own editor."""

import json
import os
import shlex
import subprocess

from convo.errors import Usage
from convo.items import with_characters
from convo.temporary import temporary_folder


def in_an_editor(arguments: str) -> str:
    """The arguments as somebody left them. raises: Usage  there is no editor, or it failed"""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise Usage("EDITOR is not set, so nothing can be edited", hint="EDITOR=nano convo ...")
    with temporary_folder("convo-edit-") as folder:
        draft = folder / "arguments.json"
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
        return with_characters(json.dumps(json.loads(arguments), indent=2))
    except (ValueError, RecursionError):
        return arguments
