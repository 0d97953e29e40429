"""Create the adapter of a provider; import no other.

A provider's package takes up to half a second to import, so each adapter is imported in its own
branch. A missing key, base URL or package is reported before any request.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from convo.config.sections import HostedTools, Provider, is_keyless
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import InvalidSettings, KeyRefused
from convo.models.base import Model
from convo.runtime import Clock, NewId
from convo.secrets import Secret

if TYPE_CHECKING:
    from convo.models.http import OpenAIClientOptions
    from convo.models.local import LocalModel
    from convo.models.pass_through import PassThroughClient
    from convo.models.responses import EventStream
    from convo.models.weights import PullProgress, Weights


def open_model(
    provider: Provider,
    *,
    key: Secret | None,
    weights_folder: Path,
    clock: Clock,
    new_id: NewId,
    token: Secret | None = None,
    limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
    is_served: bool = False,
) -> Model:
    """Open a provider's models as stateless models; no connection is made and no process is started.

    key:             the value of `key_env`, or None
    token:           the value of `token_env`, or None
    weights_folder:  the folder of the downloaded weights
    limits:          limits on the server's responses
    is_served:       a server makes the requests, not a command (see `convo.models.http`)

    Raises KeyRefused for a missing or impossible key, InvalidSettings without a base URL, ModelMissing if the package
    is not installed.
    """
    extra = provider.extra_fields
    match provider.api:
        case "local":
            return open_local_model(weights_folder, new_id, limits, hosted_tools=provider.hosted_tools)
        case "scripted":
            from convo.models.scripted import ScriptedModel

            return ScriptedModel(clock, new_id)
        case "chat":
            from convo.models.chat_completions import ChatModel

            key = check_provider_key(provider, key)
            return ChatModel(
                provider.name,
                require_base_url(provider),
                new_id,
                key=key,
                is_served=is_served,
                limits=limits,
                extra_fields=extra,
                hosted_tools=provider.hosted_tools,
                custom_tools=provider.custom_tools,
                resend_fields=provider.resend_fields,
            )
        case "anthropic":
            from convo.models.anthropic import AnthropicModel

            key = check_provider_key(provider, key)
            return AnthropicModel(
                provider.name,
                require_base_url(provider),
                new_id,
                key=key,
                is_served=is_served,
                limits=limits,
                extra_fields=extra,
                hosted_tools=provider.hosted_tools,
                prefix_mismatch_behavior=provider.prefix_mismatch_behavior,
            )
        case "responses" | "azure":
            from convo.models.responses import ResponsesModel

            options = make_openai_options(provider, key=key, token=token)
            return ResponsesModel(options, new_id, is_served=is_served, limits=limits, extra_fields=extra)


def open_pass_through(
    provider: Provider,
    *,
    key: Secret | None,
    token: Secret | None = None,
    limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
) -> "PassThroughClient":
    """Open the provider's own API for requests that are passed through; no connection is made.

    `check_api_supported` tells whether the provider has it. Raises as `open_model` does.
    """
    from convo.models.errors import ErrorContext
    from convo.models.http import make_openai_sse_client, make_transport
    from convo.models.pass_through import PassThroughClient

    if provider.api == "anthropic":
        from convo.models.anthropic import make_anthropic_client

        key, base_url = check_provider_key(provider, key), require_base_url(provider).removesuffix("/v1")
        return PassThroughClient(
            lambda: make_anthropic_client(provider.name, base_url, key, limits, is_served=True),
            ErrorContext(provider.name, base_url, key=key),
            limits,
        )
    if provider.api == "chat":
        from convo.models.chat_completions import make_chat_client

        key, base_url = check_provider_key(provider, key), require_base_url(provider)
        return PassThroughClient(
            lambda: make_chat_client(base_url, key, make_transport(base_url, limits, is_served=True), limits),
            ErrorContext(provider.name, base_url, key=key),
            limits,
        )
    options = make_openai_options(provider, key=key, token=token)
    return PassThroughClient(
        lambda: make_openai_sse_client(options, limits, is_served=True),
        options.make_error_context({}),
        limits,
        deployment=options.deployment,
        in_path=options.is_azure and options.api_version is not None,
    )


def make_openai_options(
    provider: Provider, *, key: Secret | None, token: Secret | None = None
) -> "OpenAIClientOptions":
    """Build the client options of a server that speaks the Responses API.

    Raises KeyRefused without a key and a token, InvalidSettings without a base URL.
    """
    from convo.models.http import OpenAIClientOptions

    base_url = require_base_url(provider)
    key = None if token else check_provider_key(provider, key)
    needs_no_key = key is None and token is None and is_keyless(provider)
    if key is None and token is None and not needs_no_key:
        raise KeyRefused(f"{provider.name} needs a key", hint=f"set key_env under [providers.{provider.name}]")
    return OpenAIClientOptions(
        provider=provider.name,
        base_url=base_url,
        key=key,
        token=token,
        organisation=provider.organisation,
        project=provider.project,
        use_env_headers=provider.name == "openai",
        is_azure=provider.api == "azure",
        api_version=provider.api_version,
        deployment=provider.deployment,
        is_keyless=needs_no_key,
    )


def open_custom_model(name: str, stream: "EventStream", new_id: NewId) -> Model:
    """Open the model that the definition of an agent brings."""
    from convo.models.responses import CustomModelAdapter

    return CustomModelAdapter(name, stream, new_id)


def require_base_url(provider: Provider) -> str:
    """Return the provider's base URL. Raises InvalidSettings if it is not set."""
    if provider.base_url is None:
        raise InvalidSettings(f"the provider {provider.name!r} has no base URL")
    return provider.base_url


def open_local_model(
    weights_folder: Path,
    new_id: NewId,
    limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
    *,
    hosted_tools: HostedTools = "refuse",
) -> "LocalModel":
    """Open the local models; the CLI warms them while the user types."""
    from convo.models.local import LocalModel

    return LocalModel(weights_folder, new_id, limits=limits, hosted_tools=hosted_tools)


def get_built_in_weights() -> "Weights":
    """Return the description of the built-in model's weights."""
    from convo.models.weights import BUILT_IN_WEIGHTS

    return BUILT_IN_WEIGHTS


def find_built_in_weights(weights_folder: Path) -> Path:
    """Return the path of the built-in weights. Raises ModelMissing without them or their engine."""
    return find_weights(get_built_in_weights().name, weights_folder)


def find_weights(model: str, weights_folder: Path) -> Path:
    """Return the weights file of `local/` plus `model`. Raises ModelMissing or Unreadable."""
    from convo.models import weights

    return weights.locate_weights(model, weights_folder)[1]


def pull_built_in_weights(weights_folder: Path, on_progress: "PullProgress") -> Path:
    """Download the built-in weights unless they are present. Raises ModelMissing or StoreFault."""
    from convo.models import weights

    return weights.pull_weights(weights_folder, on_progress=on_progress)


def check_provider_key(provider: Provider, key: Secret | None) -> Secret | None:
    """Return `key` if it can be sent to the provider. Raises KeyRefused."""
    if provider.key_env is None:
        return key
    if key is None:
        hint = f"convo config key set {provider.name}, set {provider.key_env}, or choose a model with -m"
        raise KeyRefused(f"{provider.name} needs a key", hint=hint)
    text = key.reveal()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise KeyRefused(
            f"{provider.key_env} contains characters that a key cannot have", hint="set the variable again"
        )
    return key
