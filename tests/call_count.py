"""Measure work as the number of calls of Python functions, independent of a clock.

    with CallCount() as calls:
        work()
    assert calls.total < 1000

Only the calls of this thread are counted; a generator counts once for each value that it yields. No garbage is
collected meanwhile: the finalizers of other tests' objects would be counted.
"""

import gc
import sys
from types import FrameType, TracebackType
from typing import Any


class CallCount:
    """Counts calls inside its `with` block."""

    def __init__(self) -> None:
        self.total = 0

    def __enter__(self) -> "CallCount":
        gc.disable()
        sys.setprofile(self._profile)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        gc.enable()

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        self.total += event == "call"
