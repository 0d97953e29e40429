"""Files that go along with a message, as content parts.

An image travels as an image and a PDF as a file, both inline; anything that is text travels as
text with its name in front. What is neither is refused here rather than at the endpoint.
"""

import base64
import mimetypes
from pathlib import Path

from convo.errors import Unreadable
from convo.items import Json

LARGEST = 50 * 1024 * 1024
"""Bytes of one file; the largest that the API takes."""


def attached(place: str) -> dict[str, Json]:
    """One file as a content part. raises: Unreadable"""
    path = Path(place).expanduser()
    content = _read(path)
    kind = mimetypes.guess_type(path.name)[0] or ""
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": _inline(kind, content), "detail": "auto"}
    if kind == "application/pdf":
        return {"type": "input_file", "filename": path.name, "file_data": _inline(kind, content)}
    try:
        return {"type": "input_text", "text": f"{path.name}:\n{content.decode('utf-8')}"}
    except UnicodeDecodeError as wrong:
        raise Unreadable(
            f"{path} is neither text nor an image nor a PDF", hint="attach a text, image or PDF"
        ) from wrong


def _read(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise Unreadable(f"{path} is a folder", hint="attach a file in it")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"{path} is larger than {LARGEST // 1024**2} MB", hint="attach a smaller file")
        return path.read_bytes()
    except OSError as wrong:
        raise Unreadable(f"{path} cannot be read: {(wrong.strerror or str(wrong)).lower()}") from wrong


def _inline(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
