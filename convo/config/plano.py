"""Settings from the configuration file of Plano, formerly archgw.

The YAML is translated into the document of a settings file, which `convo.config.schema` checks as any other. Keys
without a setting in convo are listed for a notice to the user. The YAML package is an extra, imported on first use.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from convo.config.sections import KNOWN_PROVIDERS, ProviderApi
from convo.errors import InvalidSettings
from convo.installation import make_missing_extra_error

MAX_YAML_BYTES = 256 * 1024
"""Bytes that are parsed at most: the parser takes seconds for a megabyte."""

_DEFAULT_PORT = 12_000
"""Plano's port for models where no listener names one."""


class _KnownServer(NamedTuple):
    """A provider of Plano: the API that convo uses, its server, and the path of its API.

    `base_url` in the file replaces the server, and also the path if it has a path of its own.
    """

    api: ProviderApi
    server: str | None
    path: str = "/v1"


_SERVERS: Mapping[str, _KnownServer] = {
    "anthropic": _KnownServer("anthropic", "https://api.anthropic.com", ""),
    "azure_openai": _KnownServer("azure", None, ""),
    "claude": _KnownServer("anthropic", "https://api.anthropic.com", ""),  # the name in archgw
    "deepseek": _KnownServer("chat", "https://api.deepseek.com"),
    "digitalocean": _KnownServer("chat", "https://inference.do-ai.run"),
    "edenai": _KnownServer("chat", "https://api.edenai.run", "/v3"),
    "gemini": _KnownServer("chat", "https://generativelanguage.googleapis.com", "/v1beta/openai"),
    "groq": _KnownServer("chat", "https://api.groq.com", "/openai/v1"),
    "mistral": _KnownServer("chat", "https://api.mistral.ai"),
    "moonshotai": _KnownServer("chat", "https://api.moonshot.ai"),
    "ollama": _KnownServer("chat", None),
    "openai": _KnownServer("responses", "https://api.openai.com"),
    "openrouter": _KnownServer("chat", "https://openrouter.ai", "/api/v1"),
    "qwen": _KnownServer("chat", None, "/compatible-mode/v1"),
    "together_ai": _KnownServer("chat", "https://api.together.xyz"),
    "vercel": _KnownServer("chat", "https://ai-gateway.vercel.sh"),
    "xai": _KnownServer("chat", "https://api.x.ai"),
    "xiaomi": _KnownServer("chat", "https://api.xiaomimimo.com"),
    "zhipu": _KnownServer("chat", "https://open.bigmodel.cn", "/api/paas/v4"),
}

_COMPATIBLE_SERVER = _KnownServer("chat", None)
"""Any other server with a `base_url`: Plano requires chat completions of it."""

_UNSUPPORTED_PROVIDERS = ("amazon_bedrock", "arch", "chatgpt", "plano")
"""Providers whose APIs convo does not have: Bedrock's, ChatGPT's own, and Plano's routing models."""

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)

_PROVIDER_TEXTS = ("name", "model", "access_key", "base_url", "endpoint", "protocol", "provider_interface", "provider")
_LISTENER_KEYS = ("name", "type", "address", "port", "message_format")


class PlanoConfig(NamedTuple):
    """A translated file.

    document:  as the document of a settings file, not checked yet
    unused:    the keys of the file that convo does not use, in its order
    """

    document: Mapping[str, object]
    unused: tuple[str, ...]


class _Server(NamedTuple):
    """A provider's server and key; entries of one prefix that differ in them become several providers of convo."""

    prefix: str
    api: ProviderApi
    base_url: str | None
    key_env: str | None

    @property
    def settings(self) -> dict[str, object]:
        """The provider's table in a settings file."""
        return {name: value for name, value in self._asdict().items() if name != "prefix" and value is not None}


class _PlanoModel(NamedTuple):
    """One entry of `model_providers`; `model` is "*" where clients may request any model of the provider."""

    server: _Server
    model: str
    name: str | None
    is_default: bool

    @property
    def full_name(self) -> str:
        return f"{self.server.prefix}/{self.model}"

    @property
    def is_wildcard(self) -> bool:
        return self.model == "*"


def parse_plano_config(raw: bytes, location: str) -> PlanoConfig:
    """Translate a configuration file of Plano.

    Raises InvalidSettings if it is not YAML, or too large, or the package is not installed.
    """
    return _Translator(location).translate(_parse_yaml(raw, location))


def _parse_yaml(raw: bytes, location: str) -> dict[Any, Any]:
    try:
        import yaml
    except ImportError as error:
        raise make_missing_extra_error(InvalidSettings, f"{location}: YAML", "yaml") from error
    if len(raw) > MAX_YAML_BYTES:
        raise InvalidSettings(f"{location}: is larger than {MAX_YAML_BYTES // 1024} KB, the limit of a YAML file")
    try:
        document = yaml.safe_load(raw)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidSettings(f"{location}{line}: is not YAML: {error.problem}") from error
    except (
        yaml.YAMLError,
        ValueError,
        AttributeError,
        KeyError,
        RecursionError,
    ) as error:  # their messages may repeat a key of the file
        raise InvalidSettings(f"{location}: is not YAML") from error
    if not isinstance(document, dict):
        raise InvalidSettings(f"{location}: is not a configuration of Plano: it must be a mapping")
    return document


class _Translator:
    """Translates one file; `unused` grows on the way."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._unused: dict[str, None] = {}

    def translate(self, plano: dict[Any, Any]) -> PlanoConfig:
        """Translate the whole file. Raises InvalidSettings."""
        plano = {key: value for key, value in plano.items() if value is not None}
        providers_key = "model_providers" if "model_providers" in plano else "llm_providers"
        document: dict[str, object] = {"serve": {"port": _DEFAULT_PORT}}
        for key, value in plano.items():
            if key == providers_key:
                models = list(self._iter_models(key, value))
                document |= self._translate_models(key, models, plano.get("model_aliases", {}))
            elif key == "listeners":
                document["serve"] = self._translate_listeners(value)
            elif key == "state_storage":
                document[key] = value
            elif key not in ("version", "model_aliases"):
                self._unused[str(key)] = None
        return PlanoConfig(document, tuple(self._unused))

    def _iter_models(self, key: str, value: object) -> Iterator[_PlanoModel]:
        for number, fields in enumerate(self._require_list(value, key)):
            place = f"{key}[{number}]"
            entry = {name: field for name, field in self._require_table(fields, place).items() if field is not None}
            for name in _PROVIDER_TEXTS:
                self._require_text(entry.get(name, ""), f"{place}.{name}")
            model = self._parse_model(entry, place)
            if model is None:
                self._unused[f"{key} {entry['model']}"] = None
                continue
            self._unused |= {f"{key}.{name}": None for name in entry if name not in (*_PROVIDER_TEXTS, "default")}
            if entry.get("default") and not model.is_default:
                self._unused[f"{key}.default of {model.full_name}"] = None
            if "access_key" in entry and model.server.key_env is None:
                self._unused[f"{key}.access_key of {model.full_name} (name a variable, as in $API_KEY)"] = None
            yield model

    def _parse_model(self, entry: dict[Any, Any], place: str) -> _PlanoModel | None:
        """Return the model of an entry; None if convo does not have the API of its provider."""
        full_name, interface = entry.get("model", ""), entry.get("provider_interface", entry.get("provider", ""))
        prefix, slash, model = full_name.partition("/")
        if not slash:  # the form of early versions of archgw
            prefix, model = interface, full_name
        if not prefix or not model:
            raise InvalidSettings(f"{self._location}: '{place}.model' must be provider/model")
        base_url = entry.get("base_url")
        if base_url is None and "endpoint" in entry:
            base_url = f"{entry.get('protocol', 'http')}://{entry['endpoint']}"
        kind = prefix if prefix in (*_SERVERS, *_UNSUPPORTED_PROVIDERS) else interface
        known = _SERVERS.get(kind, None if base_url is None else _COMPATIBLE_SERVER)
        if known is None or kind in _UNSUPPORTED_PROVIDERS:
            return None
        variable = _VARIABLE.fullmatch(entry.get("access_key", ""))
        if known.api == "responses" and base_url and not base_url.startswith(str(known.server)):
            known = _COMPATIBLE_SERVER  # proxies and local servers have chat completions; few have the Responses API
        key_env = (variable[1] or variable[2]) if variable else None
        server = _Server(prefix, known.api, _build_base_url(base_url, known), key_env)
        return _PlanoModel(server, model, entry.get("name"), entry.get("default") is True and model != "*")

    def _translate_models(self, key: str, models: Sequence[_PlanoModel], plano_aliases: object) -> dict[str, object]:
        """Return `providers`, `aliases` and `model` of the settings."""
        providers = _choose_provider_names(models)
        targets: dict[str, str] = {}
        short_targets: dict[str, str] = {}
        for model in models:
            target = f"{providers[model.server]}/{model.model}"
            if not model.is_wildcard:
                targets |= {name: target for name in (model.full_name, model.name) if name}
                short_targets.setdefault(model.model, target)
            elif target != model.full_name:
                self._unused[f"{key} {model.full_name}"] = None  # no alias has all models of a provider
        # a short name with a slash could be the full name of another provider's model
        names = {name: target for name, target in short_targets.items() if "/" not in name} | targets
        aliases = {name: target for name, target in names.items() if name != target}
        for alias, fields in self._require_table(plano_aliases, "model_aliases").items():
            place = f"model_aliases.{alias}"
            name = self._require_text(self._require_table(fields, place).get("target"), f"{place}.target")
            aliases[str(alias)] = (short_targets | targets).get(name, name)
        defaults = [targets[model.full_name] for model in models if model.is_default]
        if len(defaults) > 1:
            raise InvalidSettings(f"{self._location}: '{key}' has more than one default")
        tables = {name: server.settings for server, name in providers.items()}
        return {"providers": tables, "aliases": aliases, **({"model": defaults[0]} if defaults else {})}

    def _translate_listeners(self, value: object) -> dict[str, object]:
        """Return the address of the listener for models; those for agents and prompts are not used."""
        if isinstance(value, dict):  # the form of earlier versions
            value = [
                {"name": name, "type": "model" if name == "egress_traffic" else "prompt"}
                | self._require_table(fields, f"listeners.{name}")
                for name, fields in value.items()
            ]
        fields_list = self._require_list(value, "listeners")
        listeners = [self._require_table(fields, f"listeners[{number}]") for number, fields in enumerate(fields_list)]
        chosen = next((listener for listener in listeners if listener.get("type") == "model"), {})
        for listener in listeners:
            if listener is not chosen:
                self._unused[f"listeners.{listener.get('name', listener.get('type'))}"] = None
        self._unused |= {f"listeners.{name}": None for name in chosen if name not in _LISTENER_KEYS}
        serve = {"host": chosen.get("address"), "port": chosen.get("port")}
        return {"port": _DEFAULT_PORT} | {name: field for name, field in serve.items() if field is not None}

    def _require_list(self, value: object, place: str) -> list[object]:
        if not isinstance(value, list):
            raise InvalidSettings(f"{self._location}: '{place}' must be a list")
        return value

    def _require_table(self, value: object, place: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise InvalidSettings(f"{self._location}: '{place}' must be a mapping")
        return value

    def _require_text(self, value: object, place: str) -> str:
        if not isinstance(value, str):
            raise InvalidSettings(f"{self._location}: '{place}' must be a string")
        return value


def _build_base_url(base_url: str | None, known: _KnownServer) -> str | None:
    if base_url is None:
        return known.server and known.server + known.path
    has_path = "/" in base_url.partition("://")[2].rstrip("/")
    return base_url if has_path else base_url.rstrip("/") + known.path


def _choose_provider_names(models: Sequence[_PlanoModel]) -> dict[_Server, str]:
    """Return the name of convo's provider for each server: its prefix, or with a number where that is taken.

    A server with a wildcard comes first, since its prefix is part of every model's name.
    """
    names: dict[_Server, str] = {}
    for model in sorted(models, key=lambda model: not model.is_wildcard):
        server = model.server
        numbered = (f"{server.prefix}-{number}" for number in count(2))
        candidates = numbered if _has_unsafe_defaults(server) else chain([server.prefix], numbered)
        if server not in names:
            names[server] = next(name for name in candidates if name not in names.values())
    return names


def _has_unsafe_defaults(server: _Server) -> bool:
    """Whether convo's provider with this name is one of its own, or has a key that this server must not get."""
    defaults = KNOWN_PROVIDERS.get(server.prefix, {})
    is_at_default = f"{server.base_url}/".startswith(f"{defaults.get('base_url')}/")
    return defaults.get("api") in ("local", "scripted") or (
        "key_env" in defaults and server.key_env is None and not is_at_default
    )
