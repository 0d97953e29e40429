"""Sources as values: what was said where, without a disk or an environment."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from convo.config import Flags, Layer, Origin, Places, Record, Settings, Sources, resolve
from convo.config.layers import File

WORK = Path("/home/me/work")
"""Where the command runs, and where `.convo.toml` lies."""

HOME = Path("/home/me")
USER = Path("/home/me/.config/convo")
PLACES = Places(Path("/data"), Path("/state"), USER)


def sources(
    flags: Flags = Flags(),  # noqa: B008  # a frozen value
    environ: Mapping[str, str] | None = None,
    *,
    project: str | None = None,
    user: str | None = None,
) -> Sources:
    """`project` and `user` are the text of a file, or None when there is none."""
    files = []
    if project is not None:
        files.append(File(Origin(Layer.PROJECT, ".convo.toml", WORK), tomllib.loads(project)))
    if user is not None:
        files.append(File(Origin(Layer.USER, "config.toml", USER), tomllib.loads(user)))
    return Sources(flags, environ or {}, tuple(files), PLACES, WORK, HOME)


def settings(
    flags: Flags = Flags(),  # noqa: B008  # a frozen value
    environ: Mapping[str, str] | None = None,
    *,
    record: Record | None = None,
    project: str | None = None,
    user: str | None = None,
) -> Settings:
    return resolve(sources(flags, environ, project=project, user=user), record)
