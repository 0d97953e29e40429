"""Piped input: text on stdin that becomes part of a message.

A pipe or a regular file follows the words of the prompt after an empty line; "-" puts it elsewhere.
A terminal or a device such as /dev/null is never read. A socket is read only when data is ready or its
other end is closed, because a program may pass one to its child unintentionally.
"""

import fcntl
import io
import os
import re
import select
import stat
import sys
from collections.abc import Sequence
from typing import BinaryIO

from convo.cli.output import print_notice
from convo.errors import InvalidUsage, Unreadable

PIPE_ARGUMENT = "-"
"""The argument that means piped input."""

MAX_PIPED_BYTES = 10 * 1024 * 1024
"""The longest string that the API accepts."""

SILENCE_NOTICE_S = 2.0

UNDECODED_BYTE = re.compile(r"[\udc80-\udcff]")
"""Bytes of a command line that are not text, as Python decodes them."""

PIPE_CHUNK_BYTES = 64 * 1024

NOT_TEXT_HINT = "convert it, with iconv for instance, or attach it as a file"
STDIN_PATHS = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
"""Paths of stdin: an option that reads one of them uses the piped input."""


def read_message(
    words: Sequence[str], files: Sequence[str | None] = (), *, example: str, required: bool = False
) -> str | None:
    """Return the words of the prompt with the piped input, None without both.

    files:     the files that other options read; one of them may be stdin
    example:   a command for the hint
    required:  without words, any stdin except a terminal is the message

    Raises InvalidUsage for `-` at a terminal or beside an option that reads stdin, and Unreadable for a word or piped
    input that is not text, or for input that is too large.
    """
    check_message_words(words, files, example=example)
    is_terminal, is_stdin_taken = sys.stdin.isatty(), any(file in STDIN_PATHS for file in files)
    if not words and is_terminal:
        return None
    prompt = " ".join(word for word in words if word != PIPE_ARGUMENT)
    needs_pipe = PIPE_ARGUMENT in words or (required and not words and not is_stdin_taken)
    if needs_pipe or has_piped_input(files):
        return join_message_texts(prompt, read_piped_input())
    return prompt if words or required else None


def check_message_words(words: Sequence[str], files: Sequence[str | None] = (), *, example: str) -> None:
    """Raise InvalidUsage for a `-` without piped input, and Unreadable for words that are not text."""
    if PIPE_ARGUMENT in words and sys.stdin.isatty():
        raise InvalidUsage("- means piped input, but stdin is a terminal", hint=example)
    if PIPE_ARGUMENT in words and (path := next((file for file in files if file in STDIN_PATHS), None)):
        raise InvalidUsage(f"- and {path} both read stdin", hint="leave one of them out")
    if any(UNDECODED_BYTE.search(word) for word in words):
        raise Unreadable(f"the message is not text in {sys.getfilesystemencoding().upper()}", hint=NOT_TEXT_HINT)


def join_message_texts(prompt: str, piped_input: str) -> str:
    """Join both texts with an empty line; a blank one is omitted."""
    return "\n\n".join(part for part in (prompt, piped_input) if part.strip()) or prompt or piped_input


def has_piped_input(files: Sequence[str | None] = ()) -> bool:
    """Return whether stdin is input: a pipe, a regular file, or a socket that can be read at once."""
    if any(file in STDIN_PATHS for file in files):
        return False
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # a stream without a descriptor replaced stdin as input
        return not sys.stdin.isatty()
    try:
        mode, access = os.fstat(descriptor).st_mode, fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return False
    if access == os.O_WRONLY:
        return False
    if stat.S_ISSOCK(mode):
        return bool(select.select([descriptor], [], [], 0)[0])
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def read_piped_input() -> str:
    """Read all of stdin as text. Raises Unreadable."""
    encoding = sys.stdin.encoding or "utf-8"
    try:
        data = _read_limited(sys.stdin.buffer)
        if len(data) > MAX_PIPED_BYTES:
            raise Unreadable(f"piped input is larger than {MAX_PIPED_BYTES // 1024**2} MB", hint="pipe a part of it")
        return io.TextIOWrapper(io.BytesIO(data), encoding=encoding, errors="strict").read()
    except UnicodeDecodeError as error:
        raise Unreadable(f"piped input is not text in {encoding.upper()}", hint=NOT_TEXT_HINT) from error
    except OSError as error:
        raise Unreadable(f"stdin cannot be read: {(error.strerror or str(error)).lower()}") from error


def _read_limited(stream: BinaryIO) -> bytes:
    """Read to the end, but at most one byte more than `MAX_PIPED_BYTES`. Raises OSError."""
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream.read(MAX_PIPED_BYTES + 1)
    data, has_notice = bytearray(), False
    while len(data) <= MAX_PIPED_BYTES:
        if not select.select([descriptor], [], [], None if has_notice else SILENCE_NOTICE_S)[0]:
            print_notice("waiting for piped input to end; to run without it, add </dev/null")
            sys.stderr.flush()
            has_notice = True
            continue
        chunk = os.read(descriptor, min(PIPE_CHUNK_BYTES, MAX_PIPED_BYTES + 1 - len(data)))
        if not chunk:
            break
        data += chunk
    return bytes(data)
