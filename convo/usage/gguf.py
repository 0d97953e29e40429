"""The context length in the metadata of GGUF files, the weights that llama.cpp runs.

A file may come from anybody. Only its first MiB is read, which also bounds the number of values: each takes some of its
bytes. The context length is before the vocabulary, which may be larger. The package `gguf` maps the whole file and
needs numpy.
"""

import os
import struct
from functools import lru_cache
from stat import S_ISREG

GGUF_MAGIC = b"GGUF"
"""The first bytes of a file."""

_MAX_HEADER_BYTES = 1 << 20
_HEADER = struct.Struct("<4sIQQ")
"""The magic bytes, the version, the number of tensors and the number of metadata values."""

_NUMBER_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read_context_length(path: str) -> int | None:
    """Return the context length in tokens; None if the file has none, is not GGUF or cannot be read."""
    try:
        info = os.stat(path)
        if not S_ISREG(info.st_mode):  # opening a pipe would block
            return None
        return _read_context_length(path, info.st_mtime_ns, info.st_size)
    except OSError:
        return None


@lru_cache(maxsize=32)
def _read_context_length(path: str, _mtime_ns: int, _size_bytes: int) -> int | None:
    """Read the file once for each modification time and size. Raises OSError."""
    with open(path, "rb") as file:
        header = file.read(_MAX_HEADER_BYTES)
    try:
        magic, _version, _tensor_count, value_count = _HEADER.unpack_from(header)
        position, found = _HEADER.size, {}
        for _ in range(value_count if magic == GGUF_MAGIC else 0):
            key, position = _read_value(header, position, _STRING)
            (kind,) = struct.unpack_from("<I", header, position)
            value, position = _read_value(header, position + 4, kind)
            if key == "general.architecture" or str(key).endswith(".context_length"):
                found[key] = value
            tokens = found.get(f"{found.get('general.architecture')}.context_length")
            if tokens is not None:
                return tokens if type(tokens) is int and tokens > 0 else None
    except (struct.error, KeyError, ValueError, OverflowError):  # no GGUF, or more than was read
        pass
    return None


def _read_value(header: bytes, position: int, kind: int) -> tuple[object, int]:
    """Return a value, None for an array, and the position after it. Raises struct.error, KeyError or ValueError."""
    if kind == _STRING:
        (length,) = struct.unpack_from("<Q", header, position)
        end = position + 8 + length
        if end > len(header):
            raise ValueError("the header is longer than what was read")
        return header[position + 8 : end].decode(errors="replace"), end
    if kind == _ARRAY:
        item_kind, count = struct.unpack_from("<IQ", header, position)
        position += 12
        if item_kind in _NUMBER_FORMATS:
            return None, position + count * struct.calcsize(f"<{_NUMBER_FORMATS[item_kind]}")
        if count and item_kind != _STRING:
            raise ValueError("arrays of arrays are not supported")
        for _ in range(count):
            _, position = _read_value(header, position, _STRING)
        return None, position
    code = f"<{_NUMBER_FORMATS[kind]}"
    return struct.unpack_from(code, header, position)[0], position + struct.calcsize(code)
