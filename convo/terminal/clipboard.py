"""The clipboard: a control sequence for the terminal (OSC 52), and the programs of the desktop.

A terminal does not confirm the sequence, and some ignore it, so the programs are tried as well. Over SSH the sequence
sets the clipboard of the machine on which the terminal runs.
"""

import asyncio
import base64
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence

MAX_OSC52_BYTES = 74_994
"""Bytes that terminals accept at once: 100,000 characters of base64."""

CLIPBOARD_TIMEOUT_S = 2.0
"""Seconds that a program may take; some stay running in a forked child to serve the clipboard."""

CLIPBOARD_PROGRAMS: Sequence[tuple[str, Sequence[str]]] = (
    ("TMUX", ("tmux", "load-buffer", "-w", "-")),
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("", ("pbcopy",)),
)
"""Clipboard programs, and the variable that must be set for each to work."""


def build_osc52_sequence(text: str) -> str:
    """Build the control sequence that copies `text`; "" if it exceeds `MAX_OSC52_BYTES`."""
    raw = text.encode("utf-8", "replace")
    return f"\x1b]52;c;{base64.b64encode(raw).decode('ascii')}\x07" if len(raw) <= MAX_OSC52_BYTES else ""


async def copy_with_programs(text: str, environ: Mapping[str, str]) -> list[str]:
    """Copy `text` with the available programs. Returns the names of those that succeeded."""
    available = [
        argv
        for variable, argv in CLIPBOARD_PROGRAMS
        if (not variable or environ.get(variable)) and shutil.which(argv[0])
    ]
    return [argv[0] for argv in available if await _run_clipboard_program(argv, text)]


async def _run_clipboard_program(argv: Sequence[str], text: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:
        return False
    try:
        async with asyncio.timeout(CLIPBOARD_TIMEOUT_S):
            await process.communicate(text.encode("utf-8", "replace"))
    except TimeoutError:
        process.kill()
        await process.wait()
    return process.returncode == 0
