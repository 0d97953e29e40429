"""Seven layers laid over each other, value by value.

    flag > environment > the session's record > profile > .convo.toml > the user's file > built in

A profile is a table of settings with a name, `[profiles.NAME]`, in either file; the one that was
chosen goes before what stands in the files outside of it.

`Sources` holds what was found at the edge: words, variables, parsed files. `resolve` turns it into
`Settings` and touches nothing else, so the whole order can be read, and tested, as values.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from convo.config.binding import Record
from convo.config.checks import Unfit, nearest
from convo.config.keys import is_keyed, put_away
from convo.config.model_lists import ModelLists
from convo.config.names import BUILT_IN_MODEL, DEFAULT_MODELS
from convo.config.origin import BUILT_IN, Key, Layer, Origin, Setting
from convo.config.places import Places
from convo.config.prices import Price, Room
from convo.config.providers import FILE_APIS, KNOWN, Provider, ollama_url, takes_no_key
from convo.config.rates import KeyLimits, ServeLimits
from convo.config.secret import secret_in
from convo.config.settings import Limits, Serve, Settings, defaults
from convo.config.shape import check_at, checked, leaves
from convo.config.storage import Storage, Written, from_word, path_of, storage
from convo.config.trust import ProjectNotice
from convo.errors import BadSettings

MODEL: Key = ("model",)
STORAGE: Key = ("state_storage",)
TENANT: Key = ("tenant",)
KEYS_FILE: Key = ("serve", "keys_file")
RATES: Key = ("serve", "limits")
PROFILE: Key = ("profile",)
PROFILES = "profiles"
TRUSTED = "trusted"

VARIABLES: dict[str, Key] = {
    "CONVO_MODEL": MODEL,
    "CONVO_STORE": STORAGE,
    "CONVO_TENANT": TENANT,
    "CONVO_PROFILE": PROFILE,
    "CONVO_EDITING": ("editing",),
    "CONVO_ANSWERS": ("answers",),
    "OPENAI_BASE_URL": ("providers", "openai", "base_url"),
    "OPENAI_ORG_ID": ("providers", "openai", "organisation"),
    "OPENAI_PROJECT_ID": ("providers", "openai", "project"),
    "AZURE_OPENAI_ENDPOINT": ("providers", "azure", "base_url"),
    "OPENAI_API_VERSION": ("providers", "azure", "api_version"),
    "ANTHROPIC_BASE_URL": ("providers", "anthropic", "base_url"),
    "OLLAMA_HOST": ("providers", "ollama", "base_url"),
}
"""The variables that are settings, as convo and the providers' own programs name them."""


class Flags(NamedTuple):
    """What was said on the command line; None for what was not."""

    model: str | None = None
    store: str | None = None
    host: str | None = None
    port: int | None = None
    keys: str | None = None
    profile: str | None = None


FLAGS: dict[str, tuple[str, Key]] = {
    "model": ("-m", MODEL),
    "store": ("--store", STORAGE),
    "host": ("--host", ("serve", "host")),
    "port": ("--port", ("serve", "port")),
    "keys": ("--keys", KEYS_FILE),
    "profile": ("--profile", PROFILE),
}
"""How each flag is written, and the value that it sets."""


class File(NamedTuple):
    """A settings file as TOML gave it; of a project file that is not trusted only what it may set."""

    origin: Origin
    document: Mapping[str, object]


class Sources(NamedTuple):
    """Everything that settings are made of.

    files:   the stronger first: the project's, then the user's
    model_lists:  the model lists that were kept
    folder:  the working folder, in which relative paths of flags and variables begin
    notice:  the part of the project's file that is not among `files`; None where all of it is
    """

    flags: Flags
    environ: Mapping[str, str]
    files: tuple[File, ...]
    places: Places
    folder: Path
    home: Path
    model_lists: ModelLists = MappingProxyType({})
    notice: ProjectNotice | None = None

    def __repr__(self) -> str:
        return f"Sources(folder={str(self.folder)!r}, files={[file.origin.place for file in self.files]})"


def resolve(sources: Sources, record: Record | None = None) -> Settings:
    """What all layers come to; `record` is the session's, when one is gone on with.

    raises:  BadSettings  names the file, variable or flag, and the key
    """
    found: dict[Key, Setting] = {}
    for setting in _said(sources, record):
        found.setdefault(setting.key, setting)
    _check_trusted(found.get((TRUSTED,)))
    kept = _storage(found.get(STORAGE), sources)
    found |= {key: _path(found[key], sources) for key in found if key == KEYS_FILE or key[2:] == ("key_file",)}
    providers = _providers(found)
    model = found.get(MODEL) or _default_model(providers, sources.environ)
    found |= {MODEL: model, STORAGE: kept}
    values = {key: setting.value for key, setting in found.items()}
    return Settings(
        model=str(model.value),
        providers=MappingProxyType(providers),
        aliases=MappingProxyType({key[1]: str(value) for key, value in values.items() if key[0] == "aliases"}),
        storage=cast(Storage, kept.value),
        tenant=str(values[TENANT]),
        serve=_serve(values),
        limits=_limits(values),
        prices=MappingProxyType({key[1]: cast(Price, value) for key, value in values.items() if key[0] == "prices"}),
        places=sources.places,
        listed=tuple(found[key] for key in sorted(found)),
        compact_at=cast(float, values[("compact_at",)]),
        redact=cast(tuple[str, ...], values.get(("redact",), ())),
        windows=MappingProxyType({key[1]: cast(Room, value) for key, value in values.items() if key[0] == "windows"}),
        editing=str(values[("editing",)]),
        answers=str(values[("answers",)]),
        configured=frozenset(name for name, one in providers.items() if _is_configured(one, sources.environ)),
        model_lists=sources.model_lists,
        notice=sources.notice,
    )


# -- what each layer says, the strongest first ------------------------------------------------------


def _said(sources: Sources, record: Record | None) -> Iterator[Setting]:
    above = [*_from_flags(sources.flags), *_from_variables(sources.environ)]
    files = [
        Setting(key, value, file.origin)
        for file in sources.files
        for key, value in leaves(file.document, file.origin.place)
    ]
    yield from above
    if record is not None:
        yield Setting(MODEL, record.model, record.origin)
    chosen = next((one for one in (*above, *files) if one.key == PROFILE), None)
    yield from _from_profile(files, chosen, sources.notice)
    yield from (one for one in files if one.key[0] != PROFILES)
    yield from (Setting(key, value, BUILT_IN) for key, value in defaults(KNOWN).items())


def _from_profile(files: Sequence[Setting], chosen: Setting | None, notice: ProjectNotice | None) -> Iterator[Setting]:
    """What the chosen profile says. raises: BadSettings  no file has it, or all of it is ignored"""
    if chosen is None:
        return
    name, there = str(chosen.value), {one.key[1] for one in files if one.key[0] == PROFILES}
    if name not in there:
        if notice and any(one.key[:2] == (PROFILES, name) for one in notice.ignored):
            message = f"{chosen.origin.place}: profile {name!r} is in a file that is not trusted"
            raise BadSettings(message, hint=notice.hint)
        near = nearest(name, there)
        said = f"did you mean {near!r}?" if near else f"there {'are' if there else 'is'} {', '.join(there) or 'none'}"
        raise BadSettings(f"{chosen.origin.place}: no profile {name!r}; {said}", hint=f"describe [profiles.{name}]")
    for one in files:
        if one.key[:2] == (PROFILES, name):
            yield Setting(one.key[2:], one.value, one.origin.in_profile(name))


def _from_flags(flags: Flags) -> Iterator[Setting]:
    for name, (written, key) in FLAGS.items():
        value = getattr(flags, name)
        if value is not None:
            yield _one(key, value, Origin(Layer.FLAG, written))


def _from_variables(environ: Mapping[str, str]) -> Iterator[Setting]:
    for name, key in VARIABLES.items():
        if value := environ.get(name, "").strip():
            yield _one(key, value, Origin(Layer.ENVIRONMENT, name))


def _one(key: Key, value: object, origin: Origin) -> Setting:
    """A value that a flag or a variable gives. raises: BadSettings  names it"""
    try:
        if origin.name == "OLLAMA_HOST":
            value = ollama_url(str(value))
        return Setting(key, from_word(value) if key == STORAGE else check_at(key)(value), origin)
    except Unfit as unfit:
        raise BadSettings(f"{origin.name} {unfit}", hint=unfit.hint) from unfit


# -- what the values mean together -----------------------------------------------------------------


def _check_trusted(said: Setting | None) -> None:
    """raises: BadSettings  a project's file names the folders that are trusted"""
    if said is not None and said.origin.layer is Layer.PROJECT:
        raise BadSettings(
            f"{said.origin.place}: {TRUSTED!r} can only be set in your own settings", hint="convo config path"
        )


def _storage(said: Setting | None, sources: Sources) -> Setting:
    if said is None:
        return Setting(STORAGE, Storage("sqlite", path=sources.places.database), BUILT_IN)

    def meant(written: object) -> Storage:
        return storage(
            cast(Written, written),
            sources.environ,
            base=said.origin.folder or sources.folder,
            home=sources.home,
            database=sources.places.database,
        )

    key = (*STORAGE, "connection_string")
    return Setting(STORAGE, checked(key, said.value, meant, said.origin.place), said.origin)


def _path(said: Setting, sources: Sources) -> Setting:
    base = said.origin.folder or sources.folder
    return Setting(said.key, path_of(str(said.value), base, sources.home), said.origin)


def _providers(found: Mapping[Key, Setting]) -> dict[str, Provider]:
    settings = [setting for key, setting in found.items() if key[0] == "providers"]
    names = dict.fromkeys(setting.key[1] for setting in settings)
    return {name: _provider(name, [one for one in settings if one.key[1] == name]) for name in sorted(names)}


def _provider(name: str, settings: Sequence[Setting]) -> Provider:
    fields: dict[str, Any] = {setting.key[2]: setting.value for setting in settings}
    if "api" not in fields:
        place = next(iter(settings)).origin.place
        raise BadSettings(f"{place}: '{name}' is not a known provider, so 'providers.{name}.api' must be set")
    plain = Provider(name, fields["api"])
    return Provider(
        name=name,
        api=plain.api,
        base_url=fields.get("base_url"),
        key_env=fields.get("key_env"),
        token_env=fields.get("token_env"),
        owner=fields.get("owner", plain.owner),
        organisation=fields.get("organisation"),
        project=fields.get("project"),
        api_version=fields.get("api_version"),
        deployment=fields.get("deployment"),
        key_file=fields.get("key_file"),
        keyring=fields.get("keyring", plain.keyring),
        extra_fields=fields.get("extra_fields", plain.extra_fields),
    )


def _default_model(providers: Mapping[str, Provider], environ: Mapping[str, str]) -> Setting:
    """The default model."""
    for name, model in DEFAULT_MODELS.items():
        provider = providers[name]
        if secret_in(environ, provider.key_env):
            return Setting(MODEL, model, Origin(Layer.DEFAULT, f"{provider.key_env} is set"))
        if put_away(provider):
            return Setting(MODEL, model, Origin(Layer.DEFAULT, f"built in; {name} has a key"))
    return Setting(MODEL, BUILT_IN_MODEL, Origin(Layer.DEFAULT, "built in; no key found"))


def _is_configured(provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether a bare model name may mean this provider."""
    if provider.api not in FILE_APIS or provider.base_url is None:
        return False
    keyed = is_keyed(provider, environ) or secret_in(environ, provider.token_env) is not None
    return keyed or takes_no_key(provider)


def _serve(values: Mapping[Key, object]) -> Serve:
    fields: dict[str, Any] = {key[1]: value for key, value in values.items() if key[0] == "serve" and len(key) == 2}
    rates: dict[str, Any] = {key[2]: value for key, value in values.items() if key[:2] == RATES and len(key) == 3}
    keys = {key[3]: cast(KeyLimits, value) for key, value in values.items() if key[:2] == RATES and len(key) == 4}
    return Serve(
        host=fields["host"],
        port=fields["port"],
        keys_file=fields.get("keys_file"),
        seal_key_env=fields["seal_key_env"],
        max_body_bytes=fields["max_body_bytes"],
        max_header_bytes=fields["max_header_bytes"],
        max_depth=fields["max_depth"],
        max_items=fields["max_items"],
        max_requests=fields["max_requests"],
        read_s=fields["read_s"],
        write_s=fields["write_s"],
        keepalive_s=fields["keepalive_s"],
        grace_s=fields["grace_s"],
        reasoning_events=fields["reasoning_events"],
        limits=ServeLimits(
            concurrent=rates["concurrent"],
            per_minute=rates["per_minute"],
            process_per_minute=rates["process_per_minute"],
            keys=MappingProxyType(keys),
        ),
    )


def _limits(values: Mapping[Key, object]) -> Limits:
    fields: dict[str, Any] = {key[1]: value for key, value in values.items() if key[0] == "limits"}
    return Limits(
        answer_bytes=fields["answer_bytes"],
        answer_events=fields["answer_events"],
        answer_s=fields["answer_s"],
        idle_s=fields["idle_s"],
        event_bytes=fields["event_bytes"],
        output_bytes=fields["output_bytes"],
        body_bytes=fields["body_bytes"],
    )
