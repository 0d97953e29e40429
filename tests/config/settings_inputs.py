"""Settings inputs built from values, without files or environment variables."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from convo.config.loader import (
    RecordedEndpoint,
    SettingFlags,
    SettingsFile,
    SettingsInputs,
    resolve_settings,
    use_recorded_model,
)
from convo.config.paths import AppPaths
from convo.config.settings import Settings
from convo.config.values import Layer, SettingSource

WORK = Path("/home/me/work")
"""The working folder, which contains `.convo.toml`."""

HOME = Path("/home/me")
USER = Path("/home/me/.config/convo")
PATHS = AppPaths(Path("/data"), Path("/state"), USER)


def settings_inputs(
    flags: SettingFlags = SettingFlags(),  # noqa: B008  # a frozen value
    environ: Mapping[str, str] | None = None,
    *,
    project: str | None = None,
    user: str | None = None,
) -> SettingsInputs:
    """Build settings inputs. `project` and `user` are the text of a settings file, or None for no file."""
    files = []
    if project is not None:
        files.append(SettingsFile(SettingSource(Layer.PROJECT, ".convo.toml", WORK), tomllib.loads(project)))
    if user is not None:
        files.append(SettingsFile(SettingSource(Layer.USER, "config.toml", USER), tomllib.loads(user)))
    return SettingsInputs(flags, environ or {}, tuple(files), PATHS, WORK, HOME)


def make_settings(
    flags: SettingFlags = SettingFlags(),  # noqa: B008  # a frozen value
    environ: Mapping[str, str] | None = None,
    *,
    record: RecordedEndpoint | None = None,
    project: str | None = None,
    user: str | None = None,
) -> Settings:
    resolved = resolve_settings(settings_inputs(flags, environ, project=project, user=user))
    return use_recorded_model(resolved, record) if record else resolved
