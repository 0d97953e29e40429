"""The agents of a session, remembered with its runs: `chat -c` and `resume` use them again without a flag.

The row of a run keeps the absolute path that `--agent` named, and `-m`. A state file never does, and nothing
but `chat`, `next` and `resume` reads it: a server imports no agents.

A path is code to run, and a store may be shared, copied or received from another person. So each entry carries
a proof: an HMAC over session, path and model with a key in this user's own data folder (0600) and
never in a store. An entry without this user's proof is refused by name and imports nothing.
"""

import hmac
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from convo.cli.loading import reference
from convo.config import private
from convo.engine.run_keeping import ORIGIN
from convo.errors import Unreadable, Usage
from convo.ids import random_id
from convo.items import Json
from convo.stores.contract import AgentRun, Store
from convo.temporary import open_temporary

HINT = "name them with --agent FILE.py:NAME"
CHAT_HINT = f"{HINT}; or continue without agents: --agent none"


class AgentReference(NamedTuple):
    """`file` is FILE.py:NAME or FILE.toml[:NAME] with an absolute path, `model` what -m said."""

    file: str
    model: str | None


def agents_record(agent: str, model: str | None, session: str, folder: Path) -> Mapping[str, Json] | None:
    """What is kept of `--agent` and -m beside a run of a session; None where no key can be kept.

    folder:  convo's own data folder, which holds the key
    """
    found = reference(agent, "--agent")
    file = f"{found.file}:{found.name}" if found.name else str(found.file)
    key = _key(folder, make=True)
    if key is None:
        return None
    return {"agent": file, "model": model, "proof": _proof(key, session, file, model)}


async def agents_of_session(store: Store, session: str, folder: Path) -> AgentReference | None:
    """The agents of a session's newest run; None where it has no run, or the run remembers none.

    raises:  Usage       they were named by another user or on another machine
             Unreadable  their file is not there any more
    """
    rows = await store.agent_runs(session=session, limit=1)
    return agents_of_run(rows[0], folder, CHAT_HINT) if rows else None


def agents_of_run(row: AgentRun, folder: Path, hint: str = HINT) -> AgentReference | None:
    """The agents of one run; None where it remembers none. raises: as `agents_of_session`, with `hint`"""
    said = row.document.get(ORIGIN)
    if not isinstance(said, dict) or not isinstance(said.get("agent"), str):
        return None
    file, model, proof = said["agent"], said.get("model"), said.get("proof")
    key = _key(folder)
    if (
        key is None
        or not isinstance(proof, str)
        or not hmac.compare_digest(proof.encode(), _proof(key, row.session, file, model).encode())
    ):
        raise Usage(
            f"the agents of this session, {file}, were named by another user or on another machine",
            hint=hint,
        )
    place = reference(file, "--agent").file
    if not place.is_file():
        raise Unreadable(f"{place} is not there, or is no file; this session's agents were in it", hint=hint)
    return AgentReference(file, model if isinstance(model, str) else None)


def _proof(key: bytes, session: str, file: str, model: Json) -> str:
    return hmac.new(key, json.dumps([session, file, model]).encode(), sha256).hexdigest()


def _key(folder: Path, *, make: bool = False) -> bytes | None:
    """The key of this user; None where there is none, or it can be neither read nor made."""
    place = folder / "agents.key"
    try:
        if make and not place.exists():
            handle, temporary = open_temporary(private(folder))
            with open(handle, "wb") as file:
                file.write(random_id("key").encode())
            try:
                os.link(temporary, place)  # of two processes that make it at once, the first one's stays
            except FileExistsError:
                pass
            finally:
                os.unlink(temporary)
        return place.read_bytes() or None
    except OSError:
        return None
