"""Files that go along with a message, as content parts.

What a file is, its first bytes say and not its name. An image travels as an image and a PDF as a
file, both inline; anything that is text travels as text with its name in front. What is neither is
refused here rather than at the endpoint.
"""

import base64
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from convo.errors import Unreadable
from convo.items import Json

LARGEST = 50 * 1024 * 1024
"""Bytes of one file; the largest that the API takes."""

PDF = "application/pdf"

BEGINNINGS: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": lambda content: content.startswith(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": lambda content: content.startswith(b"\xff\xd8\xff"),
    "image/gif": lambda content: content.startswith((b"GIF87a", b"GIF89a")),
    "image/webp": lambda content: content[:4] == b"RIFF" and content[8:12] == b"WEBP",
    PDF: lambda content: content.startswith(b"%PDF-"),
}
"""The kinds that the API takes inline, and how to know them."""


def attached(place: str) -> dict[str, Json]:
    """One file as a content part. raises: Unreadable"""
    path = Path(os.path.expanduser(place))
    content = _read(path)
    kind = next((kind for kind, begins in BEGINNINGS.items() if begins(content)), None)
    if kind == PDF:
        return {"type": "input_file", "filename": _name(path), "file_data": _inline(kind, content)}
    if kind:
        return {"type": "input_image", "image_url": _inline(kind, content), "detail": "auto"}
    return {"type": "input_text", "text": f"{_name(path)}:\n{_text(path, content)}"}


def _read(path: Path) -> bytes:
    """All of a file, a pipe's too, and never more than fits."""
    if os.path.isdir(path):
        raise Unreadable(f"{path} is a folder", hint="attach a file in it")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as wrong:
        raise Unreadable(f"{path} cannot be read: {(wrong.strerror or str(wrong)).lower()}") from wrong
    if len(content) > LARGEST:
        raise Unreadable(f"{path} is larger than {LARGEST // 1024**2} MB", hint="attach a smaller file")
    return content


def _text(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise _neither(path) from wrong
    if "\0" in text:
        raise _neither(path)
    return text


def _neither(path: Path) -> Unreadable:
    return Unreadable(
        f"{path} is neither text in UTF-8 nor an image nor a PDF",
        hint="attach a text, a PDF, or an image as PNG, JPEG, GIF or WebP",
    )


def _name(path: Path) -> str:
    """Its name, with what is no character spelled out."""
    return path.name.encode("utf-8", "backslashreplace").decode()


def _inline(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
