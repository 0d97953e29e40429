"""Selection of a model by its full name, alias, bare name or default."""

import pytest

from convo.config.loader import choose_model, resolve_settings
from convo.config.settings import BUILT_IN_MODEL, ModelName, Settings, expand_model_name
from convo.errors import InvalidSettings, UnknownModel
from tests.config.settings_inputs import make_settings, settings_inputs

GROQ = '[providers.groq]\napi = "chat"\nbase_url = "https://api.groq.com/openai/v1"\n'
KNOWN = "(known: anthropic, azure, deepseek, groq, local, ollama, openai, scripted)"

KEYED = {"OPENAI_API_KEY": "sk-test"}


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai/gpt-5", "openai", "gpt-5"),
        ("gpt-5", "openai", "gpt-5"),
        (" gpt-5 ", "openai", "gpt-5"),
        ("ft:gpt-5:me::x", "openai", "ft:gpt-5:me::x"),
        ("ollama/llama3:8b", "ollama", "llama3:8b"),
        ("groq/meta/llama-4", "groq", "meta/llama-4"),
        ("local", "local", "smollm2-135m-instruct"),
        ("local/path/to/x.gguf", "local", "path/to/x.gguf"),
        ("local//srv/x.gguf", "local", "/srv/x.gguf"),
        ("scripted/echo", "scripted", "echo"),
        ("scripted/tests/script.json", "scripted", "tests/script.json"),
    ],
)
def test_a_name_is_split_at_its_first_slash(name: str, provider: str, model: str) -> None:
    choice = choose_model(make_settings(user=GROQ, environ=KEYED), name)

    assert choice.name == ModelName(provider, model)
    assert choice.provider.name == provider
    assert str(choice.source) == "from -m"


def test_a_model_name_is_printed_as_it_is_written() -> None:
    assert str(ModelName("local", "path/to/x.gguf")) == "local/path/to/x.gguf"


@pytest.mark.parametrize(
    ("name", "full"),
    [("fast", "groq/llama"), ("faster", "groq/llama"), ("fastest", "groq/llama"), ("mini", "openai/gpt-5-mini")],
)
def test_an_alias_names_a_model_or_another_alias(name: str, full: str) -> None:
    aliases = '[aliases]\nfast = "groq/llama"\nfaster = "fast"\nfastest = "faster"\nmini = "gpt-5-mini"'
    assert str(choose_model(make_settings(user=GROQ + aliases, environ=KEYED), name).name) == full


def test_an_alias_of_the_settings_is_resolved_too() -> None:
    choice = choose_model(make_settings(project='model = "fast"', user=GROQ + '[aliases]\nfast = "groq/llama"'))

    assert str(choice.name) == "groq/llama"
    assert str(choice.source) == "from .convo.toml, /home/me/work"


def test_an_alias_may_replace_the_short_name_of_the_built_in_model() -> None:
    choice = choose_model(make_settings(user='[aliases]\nlocal = "local/x.gguf"'), "local")
    assert str(choice.name) == "local/x.gguf"


@pytest.mark.parametrize(
    ("name", "expanded"),
    [
        ("local", BUILT_IN_MODEL),
        (BUILT_IN_MODEL, BUILT_IN_MODEL),
        ("gpt-5", "openai/gpt-5"),
        ("fast", "fast"),
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("unknown", "unknown"),
        ("openai", "openai"),
        ("openai/", "openai/"),
        ("", ""),
        ("\ud800", "\ud800"),
        ("removed/m", "removed/m"),
    ],
)
def test_the_model_of_a_stored_request_is_named_in_full_unless_it_is_an_alias_or_unknown(
    name: str, expanded: str
) -> None:
    settings = make_settings(user=GROQ + '[aliases]\nfast = "groq/llama"', environ=KEYED)
    assert expand_model_name(settings, name) == expanded


def test_an_alias_named_as_the_built_in_model_is_a_name_of_its_own() -> None:
    settings = make_settings(user='[aliases]\nlocal = "openai/gpt-5"\n', environ=KEYED)
    assert expand_model_name(settings, "local") == "local"
    assert expand_model_name(settings, BUILT_IN_MODEL) == BUILT_IN_MODEL


def test_by_default_the_built_in_model_is_chosen() -> None:
    assert str(choose_model(make_settings()).name) == BUILT_IN_MODEL


REFUSED = [
    (
        "grok/llama",
        f"-m: no provider 'grok' for 'grok/llama'; did you mean 'groq'? {KNOWN}",
        "choose one of them, or add [providers.grok] to config.toml",
    ),
    (
        "meta-llama/Llama-4",
        f"-m: no provider 'meta-llama' for 'meta-llama/Llama-4' {KNOWN}",
        "choose one of them, or add [providers.meta-llama] to config.toml",
    ),
    (
        "zzz/x",
        f"-m: no provider 'zzz' for 'zzz/x' {KNOWN}",
        "choose one of them, or add [providers.zzz] to config.toml",
    ),
    (
        "./models/x",
        f"-m: no provider '.' for './models/x' {KNOWN}",
        'choose one of them, or add [providers."."] to config.toml',
    ),
    (
        "127.0.0.1/gpt-5",
        f"-m: no provider '127.0.0.1' for '127.0.0.1/gpt-5' {KNOWN}",
        "choose another model with -m provider/model",
    ),
    (
        "./models/x.gguf",
        f"-m: no provider '.' for './models/x.gguf' {KNOWN}",
        "use local/./models/x.gguf for a file of weights",
    ),
    ("/x.gguf", f"-m: no provider '' for '/x.gguf' {KNOWN}", "use local//x.gguf for a file of weights"),
    ("ollama", "-m: 'ollama' is a provider, not a model", "use ollama/MODEL"),
    ("ollama/", "-m: 'ollama/' has no model name", "use provider/model"),
    ("", "-m: '' has no model name", "use provider/model"),
    ("one", "-m: the aliases are circular: one -> two -> three -> one", "correct the value where it is set"),
    ("self", "-m: the aliases are circular: self -> self", "correct the value where it is set"),
    (
        "azure/gpt-5",
        "the provider 'azure' has no base URL",
        "set AZURE_OPENAI_ENDPOINT, or set base_url under [providers.azure]",
    ),
    ("mine/x", "the provider 'mine' has no base URL", "set base_url under [providers.mine]"),
]
CIRCLES = '[aliases]\none = "two"\ntwo = "three"\nthree = "one"\nself = "self"\n'


@pytest.mark.parametrize(("name", "message", "hint"), REFUSED)
def test_an_invalid_name_is_refused_with_a_hint(name: str, message: str, hint: str) -> None:
    settings = make_settings(user=CIRCLES + GROQ + ('[providers.mine]\napi = "chat"' if name == "mine/x" else ""))

    with pytest.raises(InvalidSettings) as error:
        choose_model(settings, name)
    assert (error.value.message, error.value.hint, error.value.exit) == (message, hint, 2)


def test_the_error_names_the_file_that_chose_the_model() -> None:
    with pytest.raises(InvalidSettings) as error:
        choose_model(make_settings(project='model = "grop/x"', user=GROQ))
    assert error.value.message == (
        f"/home/me/work/.convo.toml: no provider 'grop' for 'grop/x'; did you mean 'groq'? {KNOWN}"
    )


def test_an_invalid_model_name_does_not_prevent_loading_the_settings() -> None:
    assert make_settings(project='model = "grop/x"').model == "grop/x"


def test_the_error_for_a_model_typed_in_a_chat_names_the_chat() -> None:
    with pytest.raises(InvalidSettings, match=r"^/model: 'ollama' is a provider, not a model$"):
        choose_model(make_settings(), "ollama", source="/model")


# -- bare names -----------------------------------------------------------------------------------

ALL_KEYS = {f"{name}_API_KEY": "key" for name in ("OPENAI", "ANTHROPIC", "DEEPSEEK", "GROQ")}
GROQ_KEYED = f'{GROQ}key_env = "GROQ_API_KEY"\n'
GROQ_URL = "https://api.groq.com/openai/v1"


def settings_with_lists(environ: dict[str, str], lists: dict[str, list[str]], url: str = GROQ_URL) -> Settings:
    """Build settings with cached model lists of providers."""
    found = settings_inputs(environ=environ, user=GROQ_KEYED)
    providers = {name: {"base_url": url, "models": models} for name, models in lists.items()}
    return resolve_settings(found._replace(model_lists=providers))


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("deepseek-v4-pro", "deepseek/deepseek-v4-pro"),
        ("gpt-4o", "openai/gpt-4o"),
        ("gpt-5", "openai/gpt-5"),
        ("gpt-6.1-sol", "openai/gpt-6.1-sol"),
        ("o1", "openai/o1"),
        ("o3-mini", "openai/o3-mini"),
        ("o4-mini", "openai/o4-mini"),
        ("chatgpt-4o-latest", "openai/chatgpt-4o-latest"),
        ("ft:gpt-4o:me::x", "openai/ft:gpt-4o:me::x"),
    ],
)
def test_a_bare_name_selects_a_provider_with_a_key_by_its_prefix(name: str, full: str) -> None:
    assert str(choose_model(make_settings(environ=ALL_KEYS), name).name) == full


@pytest.mark.parametrize("name", ["llama-4", "gpt-3", "claude", "nope"])
def test_a_bare_name_without_a_known_provider_is_refused(name: str) -> None:
    with pytest.raises(UnknownModel, match=f"no model '{name}'") as error:
        choose_model(make_settings(environ=ALL_KEYS), name)
    assert error.value.code == "model_not_found"


def test_a_bare_name_of_a_provider_without_a_key_names_the_missing_key() -> None:
    with pytest.raises(UnknownModel, match="no model 'claude-sonnet-5': anthropic needs a key") as error:
        choose_model(make_settings(environ=KEYED), "claude-sonnet-5")
    assert error.value.hint == "convo config key set anthropic, set ANTHROPIC_API_KEY, or choose a model with -m"


def test_a_bare_name_in_the_cached_list_of_a_provider_with_a_key_selects_it() -> None:
    settings = settings_with_lists(ALL_KEYS, {"groq": ["llama-4", "gpt-5"]})
    assert str(choose_model(settings, "llama-4").name) == "groq/llama-4"
    assert str(choose_model(settings, "gpt-5").name) == "groq/gpt-5"


def test_a_cached_list_counts_only_for_its_base_url_and_with_a_key() -> None:
    elsewhere = settings_with_lists(ALL_KEYS, {"groq": ["llama-4"]}, url="https://elsewhere.example")
    keyless = settings_with_lists(KEYED, {"groq": ["llama-4"]})
    for settings in (elsewhere, keyless):
        with pytest.raises(UnknownModel):
            choose_model(settings, "llama-4")


AZURE_URL = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}


@pytest.mark.parametrize(
    ("environ", "text", "configured"),
    [
        ({}, "", {"ollama"}),
        ({"OPENAI_API_KEY": "sk-1"}, "", {"ollama", "openai"}),
        ({"AZURE_OPENAI_API_KEY": "key"}, "", {"ollama"}),
        (AZURE_URL, "", {"ollama"}),
        ({"AZURE_OPENAI_API_KEY": "key", **AZURE_URL}, "", {"azure", "ollama"}),
        ({"AZURE_OPENAI_AD_TOKEN": "token", **AZURE_URL}, "", {"azure", "ollama"}),
        ({}, "[providers.deepseek]\nkeyring = true", {"deepseek", "ollama"}),
        ({}, '[providers.anthropic]\nkey_file = "key"', {"anthropic", "ollama"}),
        ({}, '[providers.mine]\napi = "chat"', {"ollama"}),
        ({}, '[providers.mine]\napi = "chat"\nbase_url = "http://127.0.0.1:1/v1"', {"mine", "ollama"}),
        ({}, '[providers.mine]\napi = "chat"\nbase_url = "http://127.0.0.1:1/v1"\nkey_env = "MINE"', {"ollama"}),
    ],
)
def test_a_bare_name_may_mean_a_provider_with_a_url_and_the_key_that_it_needs(
    environ: dict[str, str], text: str, configured: set[str]
) -> None:
    assert make_settings(environ=environ, user=text).configured_providers == configured


@pytest.mark.parametrize(
    ("keys", "full"),
    [
        (("DEEPSEEK", "ANTHROPIC", "OPENAI"), "openai/gpt-6.1-terra"),
        (("DEEPSEEK", "ANTHROPIC"), "anthropic/claude-sonnet-5-5"),
        (("DEEPSEEK",), "deepseek/deepseek-flash"),
        (("GROQ",), BUILT_IN_MODEL),
        ((), BUILT_IN_MODEL),
    ],
)
def test_the_default_model_is_that_of_the_first_provider_with_a_key(keys: tuple[str, ...], full: str) -> None:
    settings = make_settings(environ={f"{name}_API_KEY": "key" for name in keys}, user=GROQ_KEYED)
    assert str(choose_model(settings).name) == full


def test_of_several_providers_that_list_a_bare_name_the_one_with_a_default_model_is_chosen() -> None:
    names = ["openai", "anthropic", "deepseek", "azure", "groq"]
    environ = {**ALL_KEYS, "AZURE_OPENAI_API_KEY": "key", **AZURE_URL}
    found = settings_inputs(environ=environ, user=GROQ_KEYED)
    urls = {name: provider.base_url for name, provider in resolve_settings(found).providers.items()}
    chosen = []
    for count in range(len(names)):
        lists = {name: {"base_url": urls[name], "models": ["shared"]} for name in names[count:]}
        settings = resolve_settings(found._replace(model_lists=lists))
        chosen.append(choose_model(settings, "shared").name.provider)
    assert chosen == names
