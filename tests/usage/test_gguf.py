"""The context windows of GGUF files."""

import os
import struct
from pathlib import Path

import pytest

from convo.config.sections import ContextLimits
from convo.usage.model_info import SETTINGS_SOURCE, ModelWindow, find_model_window


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def write_gguf(file: Path, *values: tuple[str, int, bytes], magic: bytes = b"GGUF") -> str:
    """Write the header of a GGUF file; returns the name of the model."""
    metadata = b"".join(gguf_text(key) + struct.pack("<I", kind) + value for key, kind, value in values)
    file.write_bytes(struct.pack("<4sIQQ", magic, 3, 0, len(values)) + metadata)
    return f"local/{file}"


ARCHITECTURE = ("general.architecture", 8, gguf_text("llama"))
TAGS = ("general.tags", 9, struct.pack("<IQ", 8, 2) + gguf_text("a") + gguf_text("b"))
ROPE = ("llama.rope", 9, struct.pack("<IQ2f", 6, 2, 1.0, 2.0))


@pytest.mark.parametrize(
    ("tokens", "window"),
    [
        (2_048, ModelWindow(2_048, source="the file", reserved=256)),
        (131_072, ModelWindow(4_096, None, None, "the file", 256)),
    ],
)
def test_a_gguf_file_has_the_window_of_its_metadata_up_to_that_of_the_engine(
    tokens: int, window: ModelWindow, tmp_path: Path
) -> None:
    length = ("llama.context_length", 4, struct.pack("<I", tokens))
    for number, values in enumerate(((ARCHITECTURE, TAGS, ROPE, length), (length, ARCHITECTURE))):
        assert find_model_window(write_gguf(tmp_path / f"{number}.gguf", *values)) == window
    model = write_gguf(tmp_path / "set.gguf", ARCHITECTURE, length)
    limits = find_model_window(model, {model: ContextLimits(8_000, None)})
    assert limits == ModelWindow(8_000, source=SETTINGS_SOURCE)


@pytest.mark.parametrize(
    "values",
    [
        (),
        (ARCHITECTURE,),
        (ARCHITECTURE, ("gemma.context_length", 4, struct.pack("<I", 9))),
        (ARCHITECTURE, ("llama.context_length", 4, struct.pack("<I", 0))),
        (ARCHITECTURE, ("llama.context_length", 6, struct.pack("<f", 9.5))),
        (("x", 99, b""), ARCHITECTURE),
        (("x", 8, struct.pack("<Q", 2**63)),),
        (("x", 9, struct.pack("<IQ", 0, 2**63)),),
        (("x", 9, struct.pack("<IQ", 10, 2**63)), ARCHITECTURE),
        (("x", 9, struct.pack("<IQ", 9, 5)),),
    ],
)
def test_a_file_without_a_context_length_has_no_window(
    values: tuple[tuple[str, int, bytes], ...], tmp_path: Path
) -> None:
    assert find_model_window(write_gguf(tmp_path / "a.gguf", *values)) is None
    assert find_model_window(write_gguf(tmp_path / "b.gguf", *values, magic=b"ELF ")) is None


def test_only_files_named_gguf_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert find_model_window(f"local/{tmp_path / 'pipe.gguf'}") is None
    assert find_model_window(f"local/{tmp_path / 'missing.gguf'}") is None
    text = write_gguf(tmp_path / "text.txt", ARCHITECTURE, ("llama.context_length", 4, struct.pack("<I", 9)))
    assert find_model_window(text) is None


def test_only_the_start_of_a_file_is_read(tmp_path: Path) -> None:
    length = ("llama.context_length", 4, struct.pack("<I", 2_048))
    mebibyte = ("general.description", 8, gguf_text("x" * (1 << 20)))
    vocabulary = ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 200_000) + gguf_text("a") * 200_000)
    for later in (mebibyte, vocabulary):
        assert find_model_window(write_gguf(tmp_path / "late.gguf", ARCHITECTURE, later, length)) is None
        assert find_model_window(write_gguf(tmp_path / "early.gguf", ARCHITECTURE, length, later)) is not None


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    tags: tuple[tuple[str, int, bytes], ...] = ()
    for tokens in (1_024, 2_048):
        length = ("llama.context_length", 4, struct.pack("<I", tokens))
        window = find_model_window(write_gguf(tmp_path / "a.gguf", ARCHITECTURE, length, *tags))
        assert window is not None
        assert window.context == tokens
        tags = (TAGS,)
