"""`convo inspect --html`: conversations as one page that is a file, and needs no server and no network."""

import sys
from collections.abc import Sequence
from pathlib import Path

from convo.cli.saying import note
from convo.engine.finding import absolute
from convo.engine.whole_file import lies_at, put
from convo.errors import Usage
from convo.inspection import Known
from convo.pages.inspected import together
from convo.pages.inspector import whole
from convo.runstate import State
from convo.ui.labelled import counted


def written(found: Sequence[Known | State], handles: Sequence[str], file: Path | None) -> None:
    """Write a page about `found` into a private file, or on stdout.

    raises:  Usage  one of them is a paused run, or `file` is a conversation's own
             StoreReadOnly, StoreFull, StoreFault  it cannot be written
    """
    known = {handle: one for handle, one in zip(handles, found, strict=True) if isinstance(one, Known)}
    run = next((handle for handle in handles if handle not in known), None)
    if run is not None:
        raise Usage(f"{run} is a paused run, and a page shows conversations", hint=f"convo inspect {run}")
    if file is None:
        sys.stdout.write(whole(together(known)))
        return
    target = lies_at(Path(absolute(str(file))))
    for one in known.values():
        own = one.session.handle if one.session else one.handle
        if own and lies_at(Path(absolute(own))) == target:
            raise Usage(f"{file} is the conversation's own file", hint="name another one with --html")
    put(target, whole(together(known)))
    note(f"{counted(len(known), 'conversation')} can be looked at in {file}")
