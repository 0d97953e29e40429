"""Files of a chat: attachments, JSON schemas, and safe reading and writing.

Files are replaced atomically, so
a reader sees the old or the new one. Reading is bounded: an endless device or a pipe without a
writer raises Unreadable.
"""

import base64
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from convo.errors import StoreFault, StoreFull, StoreReadOnly, Unreadable
from convo.history.canonical import describe_json_error, refuse_json_constant
from convo.history.items import Item, Json
from convo.runtime import open_nonblocking, open_temporary_file

REPLAY_FILE_HINT = 'use a list of items, such as [{"role": "user", "content": "hi"}]'


def format_replay_file(items: Sequence[Item]) -> str:
    """Return the text of a replay file with these items, one a line."""
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=True) for item in items) + "\n]\n"


def is_regular_file(path: Path) -> bool:
    """Return whether there is a file. Raises OSError, and Unreadable for a folder, a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise Unreadable(f"{path} is a folder, not a replay file")
    if not stat.S_ISREG(mode):
        raise Unreadable(f"{path} is a pipe or a device, not a replay file")
    return True


MAX_ATTACHMENT_BYTES = 50 * 1024 * 1024
"""Bytes of one file; the limit of the API."""

PDF_TYPE = "application/pdf"

SIGNATURE_TESTS: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": lambda content: content.startswith(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": lambda content: content.startswith(b"\xff\xd8\xff"),
    "image/gif": lambda content: content.startswith((b"GIF87a", b"GIF89a")),
    "image/webp": lambda content: content[:4] == b"RIFF" and content[8:12] == b"WEBP",
    PDF_TYPE: lambda content: content.startswith(b"%PDF-"),
}
"""The binary types that the API accepts inline, each with a test of the first bytes."""


def load_attachment(file_path: str) -> dict[str, Json]:
    """Return one file as a content part. Raises Unreadable."""
    path = Path(os.path.expanduser(file_path))
    content = _read_attachment(path)
    media_type = next((media_type for media_type, matches in SIGNATURE_TESTS.items() if matches(content)), None)
    if media_type == PDF_TYPE:
        return {
            "type": "input_file",
            "filename": _format_filename(path),
            "file_data": _format_data_url(media_type, content),
        }
    if media_type:
        return {"type": "input_image", "image_url": _format_data_url(media_type, content), "detail": "auto"}
    return {"type": "input_text", "text": f"{_format_filename(path)}:\n{_decode_attachment(path, content)}"}


def _read_attachment(path: Path) -> bytes:
    """Read a whole file or pipe, at most one byte more than the limit."""
    if os.path.isdir(path):
        raise Unreadable(f"{path} is a folder", hint="attach a file from this folder")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {format_os_error(error)}") from error
    if len(content) > MAX_ATTACHMENT_BYTES:
        raise Unreadable(f"{path} is larger than {MAX_ATTACHMENT_BYTES // 1024**2} MB", hint="attach a smaller file")
    return content


def _decode_attachment(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _make_unsupported_type_error(path) from error
    if "\0" in text:
        raise _make_unsupported_type_error(path)
    return text


def _make_unsupported_type_error(path: Path) -> Unreadable:
    return Unreadable(
        f"{path} is not UTF-8 text, an image or a PDF",
        hint="attach UTF-8 text, a PDF, or a PNG, JPEG, GIF or WebP image",
    )


def _format_filename(path: Path) -> str:
    """Return the file name with bytes that are not UTF-8 escaped."""
    return path.name.encode("utf-8", "backslashreplace").decode()


def _format_data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


NON_STRICT_KEYWORDS = frozenset({"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"})
"""Keywords that the API refuses in a strict schema."""

SCHEMA_MAP_KEYWORDS = ("properties", "$defs", "definitions")
"""Keywords whose value maps names to schemas."""

VALUE_KEYWORDS = ("enum", "const", "default", "examples", "required", "type")
"""Keywords whose value is not a schema."""


def load_text_format(file_path: str) -> dict[str, Json]:
    """Return the `text` parameter for this JSON schema. Raises Unreadable.

    Strict where the schema allows it: the API accepts `strict` only for a schema that is an object,
    closes every object and requires every property.
    """
    path = Path(os.path.expanduser(file_path))
    schema = _read_schema(path)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or path.stem))[:64]
    return {
        "format": {
            "type": "json_schema",
            "name": name,
            "schema": schema,
            "strict": _is_object_schema(schema) and _is_strict_schema(schema),
        }
    }


def _is_strict_schema(schema: Json) -> bool:
    """Return whether every object in `schema` is closed and requires all its properties."""
    if not isinstance(schema, dict):
        return True
    if NON_STRICT_KEYWORDS & schema.keys() or (_is_object_schema(schema) and not _is_closed_object(schema)):
        return False
    return all(map(_is_strict_schema, _iter_subschemas(schema)))


def _read_schema(path: Path) -> dict[str, Json]:
    text = read_text_file(str(path))
    try:
        schema = json.loads(text, parse_constant=refuse_json_constant)
        _is_strict_schema(schema)
    except ValueError as error:
        raise Unreadable(f"{path} is not JSON: {describe_json_error(error)}") from error
    except RecursionError as error:
        raise Unreadable(f"{path} is nested too deeply") from error
    if not isinstance(schema, dict):
        raise Unreadable(f"{path} is not a JSON schema: it is not an object")
    return schema


def _is_object_schema(schema: dict[str, Json]) -> bool:
    return "object" in (schema.get("type"), *_to_list(schema.get("type"))) or "properties" in schema


def _is_closed_object(schema: dict[str, Json]) -> bool:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    return schema.get("additionalProperties") is False and sorted(properties) == sorted(map(str, required))


def _iter_subschemas(schema: dict[str, Json]) -> Iterator[Json]:
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
            yield from value.values()
        elif keyword not in VALUE_KEYWORDS:
            yield from _to_list(value) if isinstance(value, list) else (value,)


def _to_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


MAX_TEXT_FILE_BYTES = 16 * 1024 * 1024
"""Bytes of a text file, such as context values or an agents file."""

MAX_DEVICE_BYTES = 64 * 1024 * 1024
"""Bytes read from a device; a device that yields as many is treated as endless."""


def read_text_file(path: str) -> str:
    """Return the UTF-8 text of the file.

    Raises Unreadable for binary data, a file over the limit and a pipe without a writer.
    """
    try:
        data = _read_limited(path)
        if data is None:
            raise Unreadable(f"{path} is a pipe without a writer")
        if len(data) > MAX_TEXT_FILE_BYTES:
            raise Unreadable(f"{path} is larger than {MAX_TEXT_FILE_BYTES // 1024**2} MB")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {format_os_error(error)}") from error


def read_whole_stream(stream: BinaryIO) -> bytes:
    """Return the rest of a file or a pipe, without a limit of length.

    Raises OSError, and Unreadable for a device that does not end.
    """
    if not stat.S_ISCHR(os.fstat(stream.fileno()).st_mode) or stream.isatty():
        return stream.read()
    data = stream.read(MAX_DEVICE_BYTES)
    if len(data) == MAX_DEVICE_BYTES:
        raise Unreadable(f"{stream.name} is a device that never ends")
    return data


def _read_limited(path: str) -> bytes | None:
    """Read at most one byte more than a file may have; None for a pipe without a writer. Raises OSError."""
    with open(os.path.expanduser(path), "rb", opener=open_nonblocking) as file:
        # b"": the pipe has no writer. None: its writer, such as <(...) of a shell, has written nothing yet.
        first_byte = file.raw.read(1)
        if first_byte == b"" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            return None
        os.set_blocking(file.fileno(), True)
        return (first_byte or b"") + file.read(MAX_TEXT_FILE_BYTES)


DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""The error numbers of a full disk, an exceeded quota and a file size limit."""

PRIVATE_MODE = 0o600


def resolve_links(path: Path) -> Path:
    """Return the path of the file itself, with all links resolved. Raises Unreadable for a circular link."""
    if _is_stream(path):
        return path  # a pipe of this process (/dev/fd/N) is reachable through the link alone
    target = Path(os.path.realpath(path))
    if os.path.islink(target):
        raise Unreadable(f"{path} is a circular link")
    return target


def write_atomic(target: Path, text: str, *, mode: int | None = None) -> None:
    """Replace the content of `target` by `text`, atomically.

    mode:  file mode; by default an existing file keeps its mode and a new one gets 0600
    Raises StoreReadOnly, StoreFull, StoreFault; the file is then unchanged.
    """
    try:
        if _is_stream(target):
            target.write_text(text, encoding="utf-8")
        else:
            _replace_file(target, text, mode)
    except OSError as error:
        raise _make_write_fault(target, error) from error


def format_os_error(error: Exception) -> str:
    """Return the message of the system for a file that could not be read or written."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return (getattr(error, "strerror", None) or str(error)).lower()


def _is_stream(path: Path) -> bool:
    """Return whether the path is a pipe, a device or a socket."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def _replace_file(target: Path, text: str, mode: int | None) -> None:
    if mode is None:
        mode = target.stat().st_mode & 0o777 if os.path.exists(target) else PRIVATE_MODE
    descriptor, temporary_path = open_temporary_file(target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary_path, target)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary_path)
        raise
    # The new name is durable once the folder is, too.
    folder_descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder_descriptor)
    finally:
        os.close(folder_descriptor)


def _make_write_fault(target: Path, error: OSError) -> StoreFault:
    if error.errno in DISK_FULL_ERRNOS:
        return StoreFull(f"no space left to write {target}")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StoreReadOnly(
            f"{target} cannot be written: {format_os_error(error)}", hint="choose another file, or make it writable"
        )
    return StoreFault(f"{target} cannot be written: {format_os_error(error)}", hint="choose another file")
