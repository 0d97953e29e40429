"""Final names for endpoints, gateway and pages (new: endpoints, responses_api, server)."""

NAMES = {
    "endpoints.contract": {
        "COUNTED": "INPUT_TOKENS_FIELDS",
        "LIMIT": "LIMIT_FIELD",
        "Order": "SortOrder",
        "Page": "ItemPage",
        "Wire": "HttpRequest",
        "Connection": "ResponsesConnection",
        "Service": "EndpointService",
    },
    "endpoints.errors": {
        "FINAL": "SENTENCE_ENDINGS",
        "WITHOUT_CODE": "CODES_SENT_AS_NULL",
        "NO_STORE": "STORE_FAULT_MESSAGE",
        "_sentence": "_error_message",
        "_type": "_error_type",
        "_code": "_error_code",
    },
    "endpoints.late": {"Late": "LazyEndpoint"},
    "endpoints.open": {
        "_embedded": "_make_embedded",
        "_remote": "_make_remote",
        "_seal_key": "_read_seal_key",
        "ENDPOINTS": "ENDPOINT_FACTORIES",
        "ECHO": "ECHO_MODEL",
        "_open_to_all": "_is_public_model",
        "PATIENCE_S": "MODEL_LIST_TIMEOUT_S",
        "Lists": "FetchedModelLists",
        "asked_lists": "fetch_model_lists",
        "models_of": "build_model_resources",
        "_own_names": "_iter_configured_models",
        "_names": "_fetch_model_names",
    },
    "endpoints.on_behalf": {
        "OnBehalf": "ServerKeyModel",
        "no_model": "model_not_found_error",
        "_is_no_model": "_is_model_missing",
        "key_of_the_server": "translate_server_key_errors",
    },
    "endpoints.remote.answer": {
        "ENDS": "REMOTE_TERMINAL_EVENTS",
        "continues": "is_state_honoured",
        "check_id": "check_url_id",
        "check_body": "check_request_ids",
        "check_response": "check_response_ids",
        "_id": "_item_id",
        "_shown": "_printable_start",
        "_ignored": "_state_ignored_error",
        "conversation_id": "parse_conversation_id",
    },
    "endpoints.remote.connection": {
        "Create": "CreateResponse",
        "WENT_WELL": "SUCCESS_EVENTS",
        "Last": "LastResponse",
        "_sent": "_to_resent_body",
        "_as_continued": "_with_previous_response_id",
        "_items": "_to_items",
    },
    "endpoints.remote.endpoint": {
        "NO_COUNTING": "NO_COUNT_STATUSES",
        "Remote": "RemoteEndpoint",
        "_not_found": "_to_not_found",
        "_given": "_without_none",
        "_paged": "_page_arguments",
        "_page": "_parse_page",
    },
    "endpoints.embedded.background": {
        "TTL_S": "RUN_LEASE_TTL_S",
        "TRIES": "CLOSE_ATTEMPTS",
        "PAUSE_S": "CLOSE_RETRY_S",
        "NOTHING": "UNFINISHED_RESULT",
        "Run": "BackgroundRun",
        "begin": "start_background_run",
        "end_elsewhere": "close_detached_run",
        "_begun": "_build_queued_link",
        "_told": "_items_from_events",
    },
    "endpoints.embedded.ledger": {
        "BEAT_S": "FLUSH_INTERVAL_S",
        "LOOKS": "STATUS_CHECK_INTERVALS",
        "OPEN": "OPEN_STATUSES",
        "Ledger": "EventLog",
    },
    "endpoints.embedded.following": {
        "POLL_S": "EVENT_POLL_S",
        "followed": "follow_response",
        "output_of": "load_output",
        "_more": "_wait_for_update",
        "_number_of_the_end": "_terminal_sequence_number",
    },
    "endpoints.embedded.checks": {
        "Check": "Validator",
        "WORDS": "TYPE_NAMES",
        "MOST_METADATA": "MAX_METADATA_PAIRS",
        "LONGEST_KEY": "MAX_METADATA_KEY_LENGTH",
        "LONGEST_VALUE": "MAX_METADATA_VALUE_LENGTH",
        "in_words": "describe_type",
        "anything": "accept_any",
        "string": "string_validator",
        "handle": "validate_id",
        "boolean": "validate_boolean",
        "integer": "integer_validator",
        "whole": "validate_integer",
        "decimal": "decimal_validator",
        "_within": "_validate_range",
        "one_of": "enum_validator",
        "array": "validate_array",
        "object_": "validate_object",
        "fields": "object_validator",
        "each": "array_validator",
        "metadata": "validate_metadata",
        "only": "validate_known_fields",
    },
    "endpoints.embedded.inputs": {
        "REFERENCE": "ITEM_REFERENCE",
        "TRIGGER": "COMPACTION_TRIGGER",
        "PART": "PART_VALIDATOR",
        "MESSAGE": "MESSAGE_VALIDATOR",
        "KINDS": "ITEM_VALIDATORS",
        "SAID": "CONTENT_FIELDS",
        "_text_or_parts": "_validate_text_or_parts",
        "items_of": "parse_input_items",
        "reference": "referenced_id",
        "is_trigger": "is_compaction_trigger",
        "triggered": "has_compaction_trigger",
        "_check_item": "_validate_item",
        "_typed": "_with_reference_type",
        "_untyped_reference": "_is_untyped_reference",
    },
    "endpoints.embedded.requests": {
        "_string_or_object": "_validate_string_or_typed_object",
        "_tool": "_validate_tool",
        "_conversation": "_validate_conversation",
        "_conversation_id": "_conversation_id_of",
        "_stream_options": "_validate_stream_options",
        "_background_options": "_validate_background_options",
        "REASONING": "REASONING_VALIDATOR",
        "_stop": "_validate_stop",
        "MANAGEMENT": "CONTEXT_MANAGEMENT_VALIDATOR",
        "HONOURED": "ENDPOINT_FIELDS",
        "EXTRA": "EXTRA_FIELDS",
        "FOR_THE_MODEL": "MODEL_FIELDS",
        "ECHOED": "ECHOED_FIELDS",
        "FIELDS": "REQUEST_FIELDS",
        "COUNTED": "COUNT_FIELDS",
        "Request": "ResponseRequest",
        "read": "parse_response_request",
        "_read": "_parse_request",
        "read_connected": "parse_connection_request",
        "NOT_CONNECTED": "HTTP_ONLY_FIELDS",
        "read_count": "parse_count_request",
        "to_compact": "parse_compact_body",
        "COMPACTED": "COMPACT_FIELDS",
        "read_items": "parse_conversation_items",
        "MOST_ITEMS": "MAX_ADDED_ITEMS",
    },
    "endpoints.embedded.compacting": {
        "NO_TOKENS": "ZERO_USAGE",
        "answered": "respond_with_compaction",
        "asked": "build_response_model_request",
        "shown": "build_model_input",
        "window": "compact_history",
        "_compacting": "_respond_compacting",
        "_joined": "_prepend_compaction",
        "_not_to_be_opened": "_report_undecryptable_item",
        "_smaller": "_compact_if_requested",
        "_counts_more": "_exceeds_threshold",
        "_fitted": "_respond_fitted",
        "_announced": "_compaction_events",
        "_nothing_else": "_compaction_only_event",
        "_behind": "_shift_after_compaction",
    },
    "endpoints.embedded.summarising": {
        "KEPT": "KEPT_DIVISOR",
        "SAID": "USER_TEXT_DIVISOR",
        "SPLITS": "MAX_SPLITS",
        "PASSED_ON": "SUMMARY_PARAMETERS",
        "Asking": "CompactionInput",
        "Smaller": "CompactedInput",
        "window": "compact_to_window",
        "folded": "compact_to_item",
        "_theirs": "_compact_by_provider",
        "_summarised": "_compact_by_summary",
        "_made": "_build_result",
        "opener": "load_item_decryptor",
        "_summary": "_summarize",
        "_asked_for": "_request_summary",
        "_half": "_middle_cut",
    },
    "endpoints.embedded.ending": {
        "STOPPED": "CANCELLED_ERROR",
        "NOT_KEPT": "NOT_STORED_ERROR",
        "GONE": "ABANDONED_ERROR",
        "FAILED": "MODEL_FAILED_ERROR",
        "CUT_SHORT": "INCOMPLETE_MESSAGES",
        "DIFFERS": "TEXT_DIFFERS_ERROR",
        "Ended": "TurnResult",
        "ended": "result_from_event",
        "stopped": "cancelled_result",
        "disconnected": "disconnected_result",
        "not_kept": "not_stored_result",
        "abandoned": "abandoned_result",
        "broken_off": "build_failed_event",
        "cut_off_at_limit": "build_limit_event",
        "differing": "with_text_differs_error",
        "begun": "build_turn_link",
        "finished": "finish_turn_link",
        "change_for": "build_turn_transaction",
        "replanted": "rebase_turn_transaction",
    },
    "endpoints.embedded.resource": {
        "UNLESS_ASKED": "DEFAULT_FIELD_VALUES",
        "ONLY_IF_ASKED": "OPTIONAL_FIELDS",
        "FORMAT_FIELDS": "JSON_SCHEMA_FORMAT_DEFAULTS",
        "FUNCTION_FIELDS": "FUNCTION_TOOL_DEFAULTS",
        "FAILURES": "RESPONSE_ERROR_CODES",
        "resource": "build_response",
        "created": "build_created_event",
        "terminal": "build_terminal_event",
        "compaction": "build_compaction_resource",
        "together": "add_usage",
        "_sum": "_add_values",
        "_error": "_error_field",
        "_incomplete_details": "_incomplete_details_field",
        "_text": "_text_field",
        "_tool": "_tool_field",
        "_usage": "_usage_field",
    },
    "endpoints.embedded.membership": {
        "joined": "build_append_transaction",
        "left": "build_removal_transaction",
        "names_for": "assign_item_ids",
        "resource": "build_conversation_resource",
    },
    "endpoints.embedded.context": {
        "CONTINUES": "CONTINUABLE_STATUSES",
        "Before": "LoadedHistory",
        "before": "load_request_history",
        "referred": "resolve_references",
        "added": "select_new_items",
        "kept": "find_response_link",
        "the_response": "load_response_link",
        "the_conversation": "load_conversation",
        "ids_in": "load_item_ids",
        "_check_new": "_check_not_duplicate",
    },
    "endpoints.embedded.pairs": {
        "PAIRED": "PAIRED_TYPES",
        "check_pairs": "check_call_pairs",
        "for_the_model": "remove_incomplete_items",
        "_whole": "_complete_part",
        "_cut_off": "_is_incomplete",
        "_call_id": "_pair_id",
        "_words": "_describe_type",
    },
    "endpoints.embedded.listing": {
        "PREFIXES": "ID_PREFIXES",
        "ALWAYS_WITH_STATUS": "TYPES_WITH_STATUS",
        "MOST": "MAX_PAGE_ITEMS",
        "PLACE_DIGITS": "NODE_KEY_DIGITS",
        "prefix": "id_prefix",
        "ids_of": "resolve_item_ids",
        "shown": "to_api_item",
        "page": "paginate_items",
        "_place": "_cursor_index",
    },
    "endpoints.embedded.strict": {
        "FOLLOWS_NOTHING": "NOT_MODEL_OUTPUT_TYPES",
        "check_strictly": "check_strict_input",
        "_check_thought": "_check_reasoning",
        "_is_models": "_is_model_output",
    },
    "endpoints.embedded.conversations": {
        "_metadata": "_parse_metadata",
        "_place": "_item_index",
    },
    "endpoints.embedded.connection": {
        "Connection": "EmbeddedConnection",
        "_unstored": "_if_unstored",
    },
    "endpoints.embedded.edges": {
        "Models": "ModelOpener",
        "SPECIFIED": "SPECIFICATION_EVENT_NAMES",
        "Manner": "EndpointOptions",
        "Edges": "EndpointDeps",
    },
    "endpoints.embedded.endpoint": {"Embedded": "EmbeddedEndpoint"},
    "endpoints.embedded.fitting": {
        "Windows": "WindowLookup",
        "TOO_LONG": "WINDOW_EXCEEDED_CODE",
        "ROOM_TO_ANSWER": "OUTPUT_RESERVE_DIVISOR",
        "OFF_BY": "ESTIMATE_ERROR_FACTOR",
        "LONG": "COUNT_IN_THREAD_TOKENS",
        "UNTOLD": "RETRY_FRACTION",
        "answer": "respond_within_window",
        "_measured_beside": "_respond_fitted_in_thread",
        "_fitting": "_fit_request",
        "_answer_to": "_respond",
        "refuse": "check_fits_window",
        "shortened": "truncate_model_request",
        "too_long": "is_window_exceeded",
        "_certainly": "_minimum_tokens",
        "_room": "_input_limit_tokens",
        "_asked_again": "_respond_truncating",
        "_less": "_truncate_further",
        "_tools": "_request_tools",
    },
    "endpoints.embedded.listening": {
        "TERMINAL": "TERMINAL_EVENTS",
        "AT_A_STRETCH": "EVENTS_PER_LOOP_PASS",
        "Listening": "ResponseStream",
        "gather": "accumulate_event",
        "Telling": "EventSequencer",
    },
    "endpoints.embedded.opening": {
        "NO_TOKENS": "PREPARED_USAGE",
        "Opened": "PreparedTurn",
        "opened": "prepare_turn",
        "answer": "stream_model_events",
        "ignored": "list_unsent_fields",
        "provider": "find_implicit_provider",
        "_nothing": "_stream_prepared_only",
    },
    "endpoints.embedded.turn": {
        "FINISHED_PASSES": "DRAIN_LOOP_PASSES",
        "Turn": "ResponseTurn",
        "_finished_already": "_drain_finished_response",
        "commit": "commit_turn",
    },
    "endpoints.embedded.lock": {
        "TTL_S": "WRITE_LEASE_TTL_S",
        "writing": "conversation_write_lock",
        "_acquire": "_acquire_lease",
        "_release": "_release_acquired",
    },
    "endpoints.embedded.runs": {
        "Running": "ActiveBackgroundRun",
        "SETTLES_S": "SETTLE_TIMEOUT_S",
        "KEPT_S": "STORE_TIMEOUT_S",
        "ForegroundAnswer": "ForegroundRun",
        "Runs": "ActiveRuns",
        "_shutting_down": "_shutting_down_error",
        "unbroken": "await_to_completion",
    },
    "endpoints.embedded.sealing": {
        "FORM": "ENCRYPTED_PREFIX",
        "NAMED": "DATABASE_KEY_NAME",
        "KEY_BYTES": "KEY_SIZE_BYTES",
        "SALT": "SCRYPT_SALT",
        "COST": "SCRYPT_COST",
        "BLOCK": "SCRYPT_BLOCK_SIZE",
        "LANES": "SCRYPT_PARALLELISM",
        "is_ours": "is_encrypted_by_convo",
        "Sealing": "CompactionCipher",
        "_open": "_decrypt_item",
        "_keys": "_build_fernet",
        "_key": "_derive_key",
    },
    "endpoints.embedded.service": {
        "SWEEP_S": "SWEEP_INTERVAL_S",
        "EVENTS_FOR_S": "EVENT_RETENTION_S",
        "FORGETS": "SWEEPS_PER_EVENT_EXPIRY",
        "SHARE_OF_TTL": "PRUNES_PER_TTL",
        "PRUNE_AT_MOST_S": "MAX_PRUNE_INTERVAL_S",
        "LISTED_FOR_S": "MODEL_LIST_MAX_AGE_S",
        "Listed": "FetchModelResources",
        "Service": "EmbeddedService",
        "prune_every_s": "prune_interval_s",
    },
    "endpoints.embedded.stateless": {
        "NEEDS_STATE": "STATE_FIELDS",
        "without_state": "to_stateless_body",
        "check_references": "check_no_references",
    },
    "endpoints.embedded.refusals": {
        "LOCKED_FOR_S": "LOCKED_RETRY_S",
        "unknown_parameter": "unknown_parameter_error",
        "missing": "missing_parameter_error",
        "wrong_type": "invalid_type_error",
        "wrong_value": "invalid_value_error",
        "no_id": "invalid_id_error",
        "below": "below_minimum_error",
        "above": "above_maximum_error",
        "too_long": "too_long_error",
        "too_many_properties": "too_many_properties_error",
        "not_honoured": "unsupported_parameter_error",
        "both_owners": "mutually_exclusive_error",
        "no_input": "missing_input_error",
        "no_previous": "previous_response_not_found_error",
        "not_answered": "previous_response_not_continuable_error",
        "no_state": "stateless_server_error",
        "not_in_background": "not_cancellable_error",
        "not_followed": "not_streamable_error",
        "forgotten": "events_expired_error",
        "locked": "conversation_locked_error",
        "no_output": "missing_tool_output_error",
        "no_call": "missing_tool_call_error",
        "second_output": "duplicate_tool_output_error",
        "duplicate": "duplicate_item_error",
        "no_item": "item_not_found_error",
        "no_place": "unknown_cursor_error",
        "not_verified": "invalid_encrypted_content_error",
        "trigger_not_last": "trigger_not_last_error",
        "nothing_to_seal_with": "missing_cryptography_error",
        "_a": "_with_article",
    },
    "gateway.application": {
        "BROKEN": "INTERNAL_ERROR_BODY",
        "AUTHORIZATION": "AUTHORIZATION_HEADER",
        "SIZE_FOR_S": "STORE_SIZE_MAX_AGE_S",
        "CLOSING": "CLOSE_CONNECTION_HEADERS",
        "Log": "LogExchange",
        "Trouble": "ReportStoreFault",
        "said": "read_authorization",
        "OnePath": "PathHandler",
        "OneSocket": "WebSocketHandler",
        "nowhere": "reject_unknown_path",
    },
    "gateway.asked": {
        "Inspected": "InspectorDeps",
        "Asked": "HandlerContext",
        "Plain": "RawResponse",
        "Answer": "HandlerResult",
        "Handler": "RouteHandler",
        "listed": "to_list_resource",
    },
    "gateway.callers": {
        "_is_loopback": "_is_loopback_cached",
        "check": "check_local_caller",
        "without_port": "strip_port",
    },
    "gateway.conversations": {
        "create": "create_conversation",
        "retrieve": "retrieve_conversation",
        "update": "update_conversation",
        "delete": "delete_conversation",
        "add_items": "add_conversation_items",
        "items": "list_conversation_items",
        "item": "retrieve_conversation_item",
        "delete_item": "delete_conversation_item",
    },
    "gateway.responses": {
        "create": "create_response",
        "retrieve": "retrieve_response",
        "delete": "delete_response",
        "cancel": "cancel_response",
        "input_items": "list_input_items",
        "compact": "compact_response",
        "count": "count_input_tokens",
    },
    "gateway.standing": {
        "models": "list_model_resources",
        "model": "retrieve_model_resource",
        "healthz": "report_health",
        "readyz": "report_readiness",
        "metrics": "report_metrics",
    },
    "gateway.documents": {
        "MOST_VALUES": "MAX_JSON_VALUES",
        "NotJson": "InvalidJson",
        "TooDeep": "JsonTooDeep",
        "read": "parse_strict_json",
        "write": "serialize_strict_json",
        "_more_values": "_has_too_many_values",
        "_without_strings": "_remove_strings",
        "_signs": "_count_value_signs",
        "_deeper": "_is_deeper",
        "_inside": "_child_values",
        "_unique": "_reject_duplicate_keys",
        "_finite": "_parse_finite",
        "_constant": "_reject_constant",
        "DECODER": "JSON_DECODER",
        "ENCODER": "JSON_ENCODER",
    },
    "gateway.exchange": {
        "JSON": "JSON_CONTENT_TYPE",
        "ENDS_THE_CONNECTION": "CLOSING_STATUSES",
        "NO_CONTENT": "NO_CONTENT_STATUS",
        "CLIENT_GONE": "CLIENT_CLOSED_STATUS",
        "LARGE": "DECODE_IN_THREAD_BYTES",
        "LISTS": "ITEM_LIST_FIELDS",
        "CONNECTION": "CONNECTION_EXTENSION",
        "ClientGone": "ClientDisconnected",
        "Connection": "ClientConnection",
        "Exchange": "HttpExchange",
        "object_in": "parse_json_object",
        "headers_of": "build_error_headers",
    },
    "gateway.going": {
        "Heard": "LiveResponse",
        "Going": "LiveResponses",
        "said": "join_output_text",
    },
    "gateway.inspecting": {
        "OPEN": "RUNNING_STATUSES",
        "USUAL": "DEFAULT_SESSION_LIMIT",
        "MOST": "MAX_SESSION_LIMIT",
        "listed": "encode_session_list",
        "conversation": "encode_conversation_view",
        "heard_of": "iter_live_responses",
        "kept_of": "load_background_response",
        "store_of": "store_for_tenant",
    },
    "gateway.keys": {
        "LINE": "KEY_LINE",
        "BUCKET": "BUCKET_DIGITS",
        "BEARER": "BEARER_PREFIX",
        "Keys": "Authenticator",
        "NoKeys": "SingleTenant",
        "hash_of": "hash_api_key",
        "stamp": "read_file_stamp",
        "entries": "read_key_entries",
        "admins": "read_admin_hashes",
        "shared": "find_shared_hashes",
        "buckets": "group_by_hash_prefix",
        "new_key": "create_api_key",
    },
    "gateway.metrics": {
        "FORM": "PROMETHEUS_CONTENT_TYPE",
        "MOST_MODELS": "MAX_MODEL_LABELS",
        "OTHERS": "OTHER_MODELS_LABEL",
        "LATENCY_S": "LATENCY_BUCKETS_S",
        "kinds": "count_tokens_by_kind",
    },
    "gateway.openapi": {
        "JSON": "JSON_MEDIA_TYPE",
        "EVENTS": "SSE_MEDIA_TYPE",
        "ABOUT": "API_DESCRIPTION",
        "STREAMED": "SSE_DESCRIPTION",
        "WEBSOCKET": "WEBSOCKET_EXTENSION",
        "CONVERTER": "PATH_PARAMETER",
        "document": "build_openapi_document",
        "operation": "_build_operation",
        "in_path": "_path_parameter_object",
        "in_query": "_query_parameter_object",
        "body": "_request_body_object",
        "gives": "_success_response_object",
        "answer": "_json_response_object",
    },
    "gateway.page": {
        "GUARD": "SECURITY_HEADERS",
        "PUBLIC": "PAGE_HEADERS",
        "LIMIT": "LIMIT_PARAMETER",
        "SEEN": "SEEN_PARAMETER",
        "page": "serve_page",
        "file": "serve_page_file",
        "icon": "serve_favicon",
        "listed": "serve_session_list",
        "conversation": "serve_conversation_view",
        "private": "make_uncached_response",
        "ROUTES": "INSPECTOR_ROUTES",
    },
    "gateway.protocol": {
        "MOST_WAITING": "MAX_BUFFERED_BYTES",
        "MOST_PIPELINED": "MAX_PIPELINED_REQUESTS",
        "Gathering": "BufferedTransport",
        "BoundedHttp": "BoundedHttpProtocol",
        "bounded": "make_http_protocol",
    },
    "gateway.queries": {
        "Query": "QueryParameter",
        "string": "parse_text_value",
        "integer": "parse_integer_value",
        "_boolean": "_parse_boolean_value",
        "_included": "_parse_include_value",
        "_order": "_parse_order_value",
        "INCLUDE": "INCLUDE_PARAMETER",
        "PAGING": "PAGE_PARAMETERS",
        "LISTING": "LIST_PARAMETERS",
        "STREAM": "STREAM_PARAMETER",
        "STARTING_AFTER": "STARTING_AFTER_PARAMETER",
        "OBFUSCATION": "OBFUSCATION_PARAMETER",
        "read": "parse_query",
        "paging": "to_page_arguments",
    },
    "gateway.rate_limits": {
        "BUSY_S": "CONCURRENCY_RETRY_S",
        "Window": "MinuteWindow",
        "_refused": "_rate_limit_error",
    },
    "gateway.refusals": {
        "FULL_FOR_S": "OVERLOADED_RETRY_S",
        "no_route": "unknown_url_error",
        "wrong_method": "method_not_allowed_error",
        "wrong_form": "unsupported_content_type_error",
        "encoded": "unsupported_encoding_error",
        "not_json": "invalid_json_error",
        "not_an_object": "body_not_an_object_error",
        "body_too_large": "body_too_large_error",
        "head_too_large": "headers_too_large_error",
        "too_slow": "request_timeout_error",
        "not_http": "invalid_http_error",
        "no_handshake": "invalid_handshake_error",
        "too_many_items": "too_many_items_error",
        "too_many_requests": "overloaded_error",
        "ending": "server_shutting_down_error",
        "not_ready": "not_ready_error",
        "duplicate_authorization": "duplicate_authorization_error",
        "foreign_host": "host_not_allowed_error",
        "foreign_origin": "origin_not_allowed_error",
        "unknown_parameter": "unknown_http_parameter_error",
        "missing": "missing_http_parameter_error",
        "wrong_type": "http_parameter_type_error",
        "wrong_value": "http_parameter_value_error",
        "given_twice": "repeated_parameter_error",
        "only_with": "parameter_requires_error",
        "no_model": "unknown_model_error",
        "no_answer": "empty_stream_error",
        "no_key": "missing_api_key_error",
        "wrong_key": "incorrect_api_key_error",
    },
    "gateway.relaying": {
        "HEADERS": "SSE_HEADERS",
        "DONE": "SSE_DONE",
        "COMMENT": "SSE_KEEPALIVE_COMMENT",
        "TERMINAL": "SENT_TERMINAL_EVENTS",
        "Answering": "EventsResult",
        "Noticing": "StreamMetrics",
        "relay": "relay_events",
        "_collected": "_collect_response",
        "_passed_on": "_write_events",
        "Told": "SSEWriter",
        "as_the_api_has_it": "to_api_event",
        "encoded": "encode_sse_event",
        "reported": "record_ignored_fields",
        "LONGEST_HEADER": "MAX_IGNORED_HEADER_BYTES",
        "Watch": "CancelOnDisconnect",
    },
    "gateway.routes": {
        "Route": "ApiRoute",
        "document": "serve_openapi_document",
        "described": "load_openapi_document",
        "RESPONSE": "RESPONSE_PATH",
        "CONVERSATION": "CONVERSATION_PATH",
        "ITEM": "ITEM_PATH",
        "ROUTES": "API_ROUTES",
        "by_path": "group_by_path",
    },
    "gateway.schemas": {
        "STRING": "STRING_SCHEMA",
        "NAME": "NAME_SCHEMA",
        "BOOLEAN": "BOOLEAN_SCHEMA",
        "INTEGER": "INTEGER_SCHEMA",
        "COUNT": "COUNT_SCHEMA",
        "OBJECT": "OBJECT_SCHEMA",
        "ref": "schema_ref",
        "number": "number_schema",
        "whole": "integer_schema",
        "enum": "enum_schema",
        "array": "array_schema",
        "either": "any_of_schema",
        "or_null": "nullable_schema",
        "constant": "const_schema",
        "held": "object_schema",
        "closed": "closed_object_schema",
        "METADATA": "METADATA_SCHEMA",
        "INPUT": "INPUT_SCHEMA",
        "ID": "ID_SCHEMA",
        "CONVERSATION": "CONVERSATION_SCHEMA",
        "EFFORTS": "REASONING_EFFORTS",
        "SUMMARY": "REASONING_SUMMARY_SCHEMA",
        "CREATE": "CREATE_PROPERTIES",
        "COUNTED": "COUNT_PROPERTIES",
        "COMPACTED": "COMPACT_PROPERTIES",
        "request": "request_body_schema",
        "deleted": "deletion_schema",
        "listed": "list_schema",
        "USAGE": "USAGE_SCHEMA",
        "RESPONSE": "RESPONSE_SCHEMA",
        "ERROR": "ERROR_PROPERTIES",
    },
    "gateway.serving": {
        "BACKLOG": "LISTEN_BACKLOG",
        "KEPT_OPEN_S": "IDLE_TIMEOUT_S",
        "PING_S": "WEBSOCKET_PING_S",
        "TAKING_TURNS_S": "THREAD_SWITCH_INTERVAL_S",
        "FLUSHING_S": "SHUTDOWN_MARGIN_S",
        "DATED_S": "DATE_REFRESH_S",
        "CLOSING_S": "CLOSE_POLL_S",
        "UNEXPLAINED_S": "SHUTDOWN_NOTICE_S",
        "Server": "GatewayServer",
        "listen": "open_listening_socket",
        "address": "local_base_url",
        "check_exposed": "check_keys_required",
        "run": "run_gateway",
        "config": "build_uvicorn_config",
        "websockets": "make_websocket_protocol",
        "reported": "report_unexpected_errors",
    },
    "gateway.websocket": {
        "PATH": "WEBSOCKET_PATH",
        "METHOD": "WEBSOCKET_METHOD",
        "OPENED": "SWITCHING_PROTOCOLS_STATUS",
        "Bounds": "WebSocketLimits",
        "Ending": "CloseReason",
        "FLUSHING_S": "FINAL_SEND_TIMEOUT_S",
        "GONE": "CLIENT_DISCONNECTED",
        "STOPPING": "SERVER_STOPPING",
        "Wrong": "InvalidMessage",
        "Progress": "TurnProgress",
        "Counting": "TurnMetrics",
        "House": "WebSocketDeps",
        "Socket": "WebSocketConnection",
        "Sockets": "WebSocketConnections",
        "accept": "accept_websocket",
        "refusable": "with_http_rejection",
    },
    "gateway.websocket_messages": {
        "CREATE": "CREATE_MESSAGE_TYPE",
        "STEER": "STEER_MESSAGE_TYPE",
        "LANE": "STREAM_ID_PATTERN",
        "Create": "TurnMessage",
        "lane_of": "parse_stream_id",
        "turn": "parse_turn_message",
        "text_of": "check_text_message",
        "too_many_lanes": "too_many_streams_error",
        "too_many_waiting": "queue_full_error",
        "too_old": "connection_expired_error",
        "labelled": "with_stream_id",
        "error_message": "build_error_message",
        "steering_failed": "build_steer_failed_event",
    },
    "gateway.websocket_protocol": {
        "BoundedSocket": "BoundedWebSocketProtocol",
        "readable": "is_ascii_handshake",
    },
    "pages.conversation": {
        "POLICY": "CONVERSATION_PAGE_POLICY",
        "INLINE": "INLINE_IMAGE",
        "STYLE": "CONVERSATION_PAGE_STYLE",
        "page": "render_conversation_page",
        "_facts": "_header_facts",
        "_article": "_render_article",
        "_class": "_css_class",
        "_image": "_render_image",
        "FORMS": "PASSAGE_RENDERERS",
    },
    "pages.inspected": {
        "HANDLES": "STATE_HANDLE_FIELDS",
        "version": "hash_view_version",
        "conversation": "build_conversation_data",
        "together": "build_inspector_data",
        "_entry": "_build_list_entry",
        "Requests": "RequestTable",
        "_whole": "_merge_link_data",
        "_link": "_build_link_data",
        "_bill": "_build_bill_data",
    },
    "pages.inspector": {
        "MODULES": "SCRIPT_FILES",
        "STYLE": "STYLE_FILE",
        "PAGE": "PAGE_FILE",
        "AT": "INSPECTOR_FILES_PATH",
        "FORMS": "CONTENT_TYPES",
        "NOTHING_ELSE": "BASE_POLICY",
        "LINKED": "STYLE_LINK",
        "LOADED": "SCRIPT_TAG",
        "IMPORT": "SCRIPT_IMPORT",
        "EXPORT": "SCRIPT_EXPORT",
        "File": "PageFile",
        "served": "load_page_files",
        "whole": "render_inspector_page",
        "one_script": "bundle_scripts",
        "hash_of": "format_policy_hash",
        "text": "read_static_text",
    },
}

_ENDPOINT = {  # the Endpoint protocol: the same new name in the protocol and in each implementation
    "wire": "build_http_request",
    "input_items": "list_input_items",
    "conversation": "retrieve_conversation",
    "add_items": "add_conversation_items",
    "conversation_items": "list_conversation_items",
    "conversation_item": "retrieve_conversation_item",
    "delete_item": "delete_conversation_item",
    "count": "count_input_tokens",
}
_METRICS = {  # the protocols StreamMetrics and TurnMetrics, Metrics, CombinedMetrics
    "answered": "record_request",
    "first_event": "record_first_event",
    "ended": "record_response",
    "stream": "add_open_streams",
    "store_fault": "record_store_fault",
}


def _of(name: str, attributes: dict[str, str], *only: str) -> dict[str, str]:
    return {f"{name}.{old}": new for old, new in attributes.items() if not only or old in only}


ATTRIBUTES = {
    "endpoints.contract": {
        **_of("Endpoint", _ENDPOINT),
        "Service.of": "endpoint_for",
        "Service.models": "list_models",
        "Service.check": "check_ready",
    },
    "endpoints.late": {"Late._make": "_make_endpoint", "Late._made": "_endpoint"},
    "endpoints.open": {
        "ModelsByName._open": "_models",
        "ModelsByName._opened": "_open_provider_model",
        "ModelsByName._chosen": "_resolve_name",
        "ModelsByName.learn": "add_model_lists",
        "ModelsForClients._opened": "_open_provider_model",
        "ModelsForClients._chosen": "_resolve_name",
    },
    "endpoints.on_behalf": {
        "OnBehalf._asked": "_requested_name",
        "OnBehalf._own": "_provider_model",
        "OnBehalf._for_the_client": "_translate_errors",
        "OnBehalf._renamed": "_hide_model_name",
        "OnBehalf._hiding_the_model": "_hide_model_in_event",
    },
    "endpoints.remote.connection": {
        "Last.window": "items",
        "ResendingConnection._note": "_remember_response",
    },
    "endpoints.remote.endpoint": {
        **_of("Remote", _ENDPOINT),
        "Remote._http": "_http_client",
        "Remote._line": "_sse_client",
        "Remote._told": "_stream_response",
        "Remote._events": "_check_events",
        "Remote._json": "_fetch_json",
        "Remote._sent": "_fetch_response",
        "Remote._opened": "_prepare_body",
        "Remote._own": "_restore_own_items",
        "Remote._asked": "_error_context",
        "Remote._connected": "_connect_openai",
        "Remote._streamed": "_stream_json",
        "Remote._way": "_connect_sse",
    },
    "endpoints.embedded.background": {
        "Run._edges": "_deps",
        "Run._held": "_exit_stack",
        "Run._ledger": "_event_log",
        "Run._began": "_started_s",
        "Run._first_s": "_first_token_s",
        "Run._so_far": "_items_so_far",
        "Run._stopping": "_stop_requested",
        "Run._why": "_make_stop_result",
        "Run.next_news": "next_update",
        "Run._carry_out": "_run",
        "Run._ended": "_await_result",
        "Run._answer": "_stream_model",
        "Run._in_progress": "_record_start",
        "Run._end": "_close_with_retries",
    },
    "endpoints.embedded.ledger": {
        "Ledger._id": "_response_id",
        "Ledger._told": "_sequencer",
        "Ledger._waiting": "_unflushed",
        "Ledger._doubtful": "_is_last_append_unknown",
        "Ledger._writing": "_flush_lock",
        "Ledger._news": "_update",
        "Ledger.next_news": "next_update",
        "Ledger.ring": "notify",
        "Ledger.add": "append",
        "Ledger.keep": "flush_periodically",
        "Ledger._kept": "_flush_if_open",
        "Ledger._open": "_is_run_open",
        "Ledger._leave_out_what_is_kept": "_drop_stored_events",
    },
    "endpoints.embedded.requests": {
        "Request.previous": "previous_response_id",
        "Request.conversation": "conversation_id",
        "Request.compact_at": "compact_threshold",
        "Request.compact_now": "is_compaction",
        "Request.shown": "stream",
        "Request.padded": "include_obfuscation",
        "Request.for_the_model": "model_parameters",
    },
    "endpoints.embedded.summarising": {
        "Asking.ask": "request",
        "Asking.who": "model_name",
        "Asking.edges": "deps",
        "Smaller.shown": "visible_items",
        "Smaller.beside": "user_items",
    },
    "endpoints.embedded.ending": {
        "Ended.sent": "is_sent",
        "Ended.acknowledged": "is_confirmed",
        "Ended.joins": "is_appended",
    },
    "endpoints.embedded.context": {"Before.ids": "item_ids"},
    "endpoints.embedded.conversations": {
        "Conversations._edges": "_deps",
        "Conversations.add": "add_items",
        "Conversations.items": "list_items",
        "Conversations.item": "retrieve_item",
        "Conversations.remove": "delete_item",
        "Conversations._whole": "_resolve_items",
        "Conversations._path": "_load_path",
        "Conversations._writing": "_lock",
    },
    "endpoints.embedded.connection": {
        "Connection._edges": "_deps",
        "Connection._goes_on": "_continues_last",
        "Connection._allowed": "_to_allowed_body",
        "Connection._note": "_remember_history",
        "Connection._let_go": "_forget_history",
    },
    "endpoints.embedded.edges": {
        "Manner.for_clients": "is_server",
        "Manner.renamed": "event_names",
        "Manner.estimates": "estimate_tokens",
        "Edges.sealing": "cipher",
        "Edges.manner": "options",
        "Edges.windows": "find_window",
    },
    "endpoints.embedded.endpoint": {
        **_of("Embedded", _ENDPOINT),
        "Embedded._edges": "_deps",
        "Embedded._history": "_load_history",
        "Embedded._read": "_parse_request",
        "Embedded._counted": "_parse_count_request",
        "Embedded._response": "_load_link",
        "Embedded._stop": "_cancel_run",
    },
    "endpoints.embedded.listening": {
        "Listening._answer": "_events",
        "Listening._receipts": "_is_sent_only",
        "Listening._hidden": "_is_hidden",
        "Listening.finished": "finished_items",
        "Listening._partial": "_accumulator",
        "Listening._text": "_streamed_text",
        "Listening._heard": "_event_count",
        "Listening.so_far": "items_so_far",
        "Listening.received": "received_items",
        "Listening.sent": "mark_sent",
        "Listening.first": "read_first",
        "Listening.after": "read_next",
        "Listening.ended": "build_result",
        "Listening._taken": "_record",
        "Telling._renamed": "_event_names",
    },
    "endpoints.embedded.opening": {"Opened.before": "history", "Opened.saw": "input_path"},
    "endpoints.embedded.turn": {
        "Turn._edges": "_deps",
        "Turn._began": "_started_s",
        "Turn._told": "_sequencer",
        "Turn._left": "_finished_turn",
        "Turn.left": "to_history",
        "Turn._begun": "_build_link",
        "Turn._stop": "_cancel",
        "Turn._keep_at_last": "_commit_or_report",
        "Turn._keep": "_commit_result",
        "Turn._finished": "_finish_link",
    },
    "endpoints.embedded.runs": {
        "Running.next_news": "next_update",
        "ForegroundAnswer.conversation": "conversation_id",
        "ForegroundAnswer.stopped": "is_stopped",
        "ForegroundAnswer.closing": "is_closing",
        "ForegroundAnswer.suspended": "is_suspended",
        "ForegroundAnswer.ended": "end_event",
        "ForegroundAnswer.close": "begin_close",
        "Runs._over": "_is_grace_over",
        "Runs._responses": "_background",
        "Runs._closing": "_is_closing",
        "Runs.start": "start_task",
        "Runs.enter": "register",
        "Runs.leave": "unregister",
        "Runs.here": "find_background",
        "Runs.foreground": "track_foreground",
        "Runs._unfinished": "_unfinished_tasks",
    },
    "endpoints.embedded.sealing": {
        "Sealing._keys": "_fernet",
        "Sealing.seal": "encrypt",
        "Sealing.opener": "load_decryptor",
        "Sealing._opened": "_load_fernet",
    },
    "endpoints.embedded.service": {
        "Service._listed": "_fetch_models",
        "Service._manner": "_options",
        "Service._pruned": "_pruned_at",
        "Service._sweeping": "_sweep_task",
        "Service._list": "_model_list",
        "Service._asking": "_model_list_lock",
        "Service.of": "endpoint_for",
        "Service.models": "list_models",
        "Service.check": "check_ready",
        "Service._sweep_on": "_sweep_forever",
    },
    "gateway.application": {
        "Gateway.ending": "is_shutting_down",
        "Gateway._metrics_of": "_metrics_by_tenant",
        "Gateway._inspected": "_inspector_deps",
        "Gateway._guarded": "_is_local_only",
        "Gateway._keys": "_authenticator",
        "Gateway._trouble": "_report_store_fault",
        "Gateway._bounds": "_websocket_limits",
        "Gateway._running": "_running_requests",
        "Gateway._measured": "_store_measured_at",
        "Gateway._limits": "_rate_limits",
        "Gateway._notice": "_report_fault",
        "Gateway._counting": "_metrics_for",
        "Gateway._own_metrics": "_tenant_metrics",
        "Gateway._figures": "_render_metrics",
        "Gateway.carry_out": "handle_request",
        "Gateway._handle": "_run_handler",
        "Gateway._room": "_request_slot",
        "Gateway._tenant": "_authenticate",
        "Gateway.talk": "serve_websocket",
        "Gateway._tell": "_record_exchange",
        "OnePath._methods": "_routes",
    },
    "gateway.asked": {
        "Inspected.going": "live_responses",
        "Asked.inspected": "inspector",
        "Asked.figures": "render_metrics",
        "Asked.ending": "is_shutting_down",
        "Asked.ids": "path_params",
        "Asked.array": "get_array",
        "Asked.strings": "get_object",
        "Asked.flag": "get_boolean",
        "Asked.only": "check_fields",
        "Plain.form": "content_type",
    },
    "gateway.exchange": {
        "Connection.on_close": "set_close_callback",
        "Connection._on_close": "_close_callback",
        "Exchange.code": "error_code",
        "Exchange.limit": "limit_name",
        "Exchange.differs": "text_differs",
        "Exchange.ignored": "ignored_fields",
        "Exchange.allow": "allowed_methods",
        "Exchange._began": "_started_s",
        "Exchange.took_s": "duration_s",
        "Exchange.document": "read_json_object",
        "Exchange._check_form": "_check_content_headers",
        "Exchange._body": "_read_body",
        "Exchange._gathered": "_receive_body",
        "Exchange.begin": "start_response",
        "Exchange.piece": "send_chunk",
        "Exchange.answer": "send_json",
        "Exchange.answer_bytes": "send_bytes",
        "Exchange.reached": "record_limit",
        "Exchange.refuse": "send_error",
    },
    "gateway.going": {
        "Heard.partial": "accumulator",
        "Heard.goes_on_from": "is_continuation_of",
        "Heard.as_json": "to_json",
        "Going._heard": "_by_tenant",
        "Going.of": "for_tenant",
        "Going.told": "track",
        "Going._forget": "_remove",
    },
    "gateway.keys": {
        "Keys.tenant": "authenticate",
        "NoKeys.tenant": "authenticate",
        "KeysFile.tenant": "authenticate",
        "KeysFile._seen": "_stamp",
        "KeysFile._known": "_names_by_hash",
        "KeysFile._admins": "_admin_hashes",
        "KeysFile._look_again": "_reload_if_changed",
    },
    "gateway.metrics": {
        **_of("Metrics", _METRICS),
        **_of("CombinedMetrics", _METRICS),
        "Metrics._first": "_first_event_latency",
        "Metrics._streams": "_open_streams",
        "Metrics._faults": "_store_faults",
        "Metrics._models": "_model_labels",
        "Metrics.store_took": "record_store_duration",
        "Metrics.store_size": "set_store_size",
        "Metrics.text": "render",
        "Metrics._label": "_label_for",
    },
    "gateway.protocol": {
        "Gathering._waiting": "_buffer",
        "Gathering._size": "_size_bytes",
        "BoundedHttp._head": "_head_bytes",
        "BoundedHttp._timer": "_head_timer",
        "BoundedHttp._stalled": "_write_timer",
        "BoundedHttp._pipelined": "_pipelined_bytes",
        "BoundedHttp._wait_for_a_head": "_start_head_timer",
        "BoundedHttp._stop_waiting": "_stop_head_timer",
        "BoundedHttp._taken": "_stop_write_timer",
        "BoundedHttp._left": "_notify_disconnect",
        "BoundedHttp._read_on": "_resume_reading",
        "BoundedHttp._grow": "_count_head_bytes",
        "BoundedHttp._too_late": "_refuse_slow_head",
        "BoundedHttp._refuse": "_send_error",
    },
    "gateway.queries": {"Query.read": "parse", "Query.words": "description", "Query.many": "is_repeatable"},
    "gateway.rate_limits": {
        "RateLimits._all": "_process_window",
        "RateLimits.enter": "acquire",
        "RateLimits.leave": "release",
    },
    "gateway.relaying": {
        **_of("Noticing", _METRICS, "first_event", "ended", "stream"),
        "Answering.streamed": "stream",
        "Answering.early": "is_first_event_final",
        "Answering.maybe": "may_be_empty",
        "Told._noticing": "_metrics",
        "Told._next": "_next_sequence_number",
        "Told._quiet": "_is_quiet",
        "Told.begun": "is_started",
        "Told.event": "write_event",
        "Told.fault": "write_error",
        "Told.quiet": "write_keepalive",
        "Told._begin": "_start",
        "Watch._quiet": "_send_keepalive",
        "Watch._every_s": "_interval_s",
        "Watch._gone": "_is_disconnected",
        "Watch._begins": "_keepalive_timer",
        "Watch._keeping_alive": "_keepalive_task",
        "Watch._begin": "_start_keepalive",
    },
    "gateway.routes": {
        "Route.gives": "response_schema",
        "Route.takes": "request_schema",
        "Route.optional": "is_body_optional",
        "Route.events": "can_stream",
        "Route.open": "is_public",
        "Route.asks": "calls_model",
        "Route.operation": "operation_id",
    },
    "gateway.serving": {
        "Server.told": "end_requested",
        "Server.end": "request_end",
        "Server._at_rest": "_wait_until_idle",
    },
    "gateway.websocket": {
        **_of("Counting", _METRICS, "answered", "store_fault"),
        "Bounds.age_s": "max_age_s",
        "Bounds.waiting": "max_queued",
        "Bounds.lanes": "max_streams",
        "Wrong.lane": "stream_id",
        "Progress.number": "next_sequence_number",
        "House.bounds": "limits",
        "House.counting": "metrics",
        "House.read": "parse_message",
        "House.room": "request_slot",
        "House.told": "track_events",
        "Socket._house": "_deps",
        "Socket._chains": "_connections",
        "Socket._waiting": "_queue",
        "Socket._ending": "_close_reason",
        "Socket._answering": "_turns_task",
        "Socket.end": "close_after_turn",
        "Socket.break_off": "cancel_turn",
        "Socket._answer_all": "_run_turns",
        "Socket._next": "_next_message",
        "Socket._carry_out": "_run_turn",
        "Socket._pass_on": "_send_events",
        "Socket._chain": "_connection_for",
        "Socket._listen": "_receive_messages",
        "Socket._grow_old": "_close_at_max_age",
        "Socket._take": "_queue_message",
        "Socket._turn": "_parse_turn",
        "Socket._send": "_send_event",
        "Socket._say_goodbye": "_send_close",
        "Socket._tell": "_send_message",
        "Sockets.holding": "track",
        "Sockets._open": "_close_events",
    },
    "gateway.websocket_messages": {"Create.lane": "stream_id"},
    "gateway.websocket_protocol": {
        "BoundedSocket._stalled": "_write_timer",
        "BoundedSocket._refuse": "_send_error",
        "BoundedSocket._taken": "_stop_write_timer",
    },
    "pages.inspected": {"Requests._places": "_indexes", "Requests.place": "index_of", "Requests.listed": "requests"},
    "pages.inspector": {"File.form": "content_type"},
}

PARAMETERS = {
    "endpoints.embedded.background": {
        "Run.__init__.edges": "deps",
        "Run.__init__.held": "exit_stack",
        "Run._end.end": "result",
        "Run._close.end": "result",
        "begin.edges": "deps",
        "end_elsewhere.how": "make_result",
        "end_elsewhere.edges": "deps",
        "_begun.edges": "deps",
    },
    "endpoints.embedded.checks": {
        "string.longest": "max_length",
        "integer.least": "minimum",
        "integer.most": "maximum",
        "decimal.least": "minimum",
        "decimal.most": "maximum",
        "_within.least": "minimum",
        "_within.most": "maximum",
        "each.inner": "item_validator",
        "only.within": "prefix",
    },
    "endpoints.embedded.compacting": {
        "answered.edges": "deps",
        "shown.edges": "deps",
        "window.edges": "deps",
        "_compacting.asking": "compaction",
        "_joined.made": "compacted",
        "_smaller.asking": "compaction",
        "_counts_more.threshold": "threshold_tokens",
        "_fitted.asking": "compaction",
        "_announced.made": "compacted",
        "_announced.asked_for": "by_trigger",
        "_nothing_else.made": "compacted",
        "_behind.made": "compacted",
    },
    "endpoints.embedded.connection": {
        "Connection.__init__.edges": "deps",
        "Connection._allowed.last": "last_history",
        "Connection._note.last": "last_history",
        "Connection._let_go.last": "last_history",
        "_unstored.last": "last_history",
    },
    "endpoints.embedded.context": {
        "added.found": "referenced",
    },
    "endpoints.embedded.conversations": {
        "Conversations.__init__.edges": "deps",
    },
    "endpoints.embedded.ending": {
        "differing.end": "result",
        "begun.before": "history",
        "begun.saw": "input_path",
        "finished.saw": "input_path",
        "finished.end": "result",
        "finished.seconds": "duration_s",
        "change_for.before": "history",
        "change_for.saw": "input_path",
        "change_for.end": "result",
        "replanted.saw": "input_path",
        "replanted.end": "result",
    },
    "endpoints.embedded.endpoint": {
        "Embedded.__init__.manner": "options",
        "Embedded.__init__.windows": "find_window",
    },
    "endpoints.embedded.fitting": {
        "answer.who": "model_name",
        "_measured_beside.who": "model_name",
        "_fitting.who": "model_name",
        "refuse.who": "model_name",
        "shortened.who": "model_name",
        "too_long.wrong": "error",
        "_less.wrong": "error",
    },
    "endpoints.embedded.following": {
        "followed.edges": "deps",
        "output_of.edges": "deps",
        "_more.news": "update",
        "_more.edges": "deps",
        "_number_of_the_end.edges": "deps",
    },
    "endpoints.embedded.ledger": {
        "Ledger.__init__.told": "sequencer",
        "Ledger._kept.look": "check_status",
    },
    "endpoints.embedded.listening": {
        "Listening.__init__.receipts": "sent_only",
        "gather.partial": "accumulator",
        "Telling.__init__.renamed": "event_names",
    },
    "endpoints.embedded.lock": {
        "_release.taking": "acquisition",
    },
    "endpoints.embedded.membership": {
        "left.at": "index",
        "names_for.taken": "used_ids",
    },
    "endpoints.embedded.opening": {
        "opened.edges": "deps",
        "opened.held": "exit_stack",
        "opened.last": "last_history",
        "answer.edges": "deps",
        "ignored.edges": "deps",
        "provider.edges": "deps",
    },
    "endpoints.embedded.refusals": {
        "wrong_type.wanted": "expected",
        "below.least": "minimum",
        "above.most": "maximum",
        "too_long.most": "maximum",
        "too_many_properties.most": "maximum",
        "not_honoured.what": "reason",
    },
    "endpoints.embedded.resource": {
        "compaction.made_at": "created_at",
        "_text.asked": "given",
    },
    "endpoints.embedded.runs": {
        "Runs.enter.running": "run",
        "Runs.wait_until_ended.conversation": "conversation_id",
    },
    "endpoints.embedded.sealing": {
        "_keys.phrases": "passphrases",
        "_key.phrase": "passphrase",
    },
    "endpoints.embedded.service": {
        "Service.__init__.listed": "fetch_models",
        "Service.__init__.manner": "options",
    },
    "endpoints.embedded.strict": {
        "check_strictly.saw": "history",
        "_check_thought.at": "index",
        "_check_thought.behind": "later_items",
        "_check_arguments.at": "index",
    },
    "endpoints.embedded.summarising": {
        "window.asking": "compaction",
        "folded.asking": "compaction",
        "folded.threshold": "threshold_tokens",
        "_theirs.asking": "compaction",
        "_summarised.asking": "compaction",
        "_summarised.outside": "keep_user_items",
        "_made.asking": "compaction",
        "_made.beside": "user_items",
        "opener.edges": "deps",
        "_summary.asking": "compaction",
        "_summary.folded": "items",
        "_asked_for.asking": "compaction",
        "_asked_for.folded": "items",
    },
    "endpoints.embedded.turn": {
        "Turn.__init__.edges": "deps",
        "Turn.__init__.last": "last_history",
        "Turn._begun.answered": "has_answered",
        "Turn._stop.asked": "model_events",
        "Turn._stop.listening": "stream",
        "Turn._keep_at_last.end": "result",
        "Turn._keep.end": "result",
        "Turn._finished.end": "result",
        "_finished_already.listening": "stream",
        "commit.end": "result",
    },
    "endpoints.on_behalf": {
        "OnBehalf.__init__.asked": "requested_name",
        "OnBehalf.__init__.own": "provider_model",
        "OnBehalf._renamed.words": "message",
        "no_model.why": "cause",
        "key_of_the_server.asked": "key_sent",
    },
    "endpoints.remote.answer": {
        "_ignored.asked": "handle",
    },
    "endpoints.remote.connection": {
        "ResendingConnection._note.last": "last_response",
        "_sent.last": "last_response",
        "_as_continued.last": "last_response",
        "_items.said": "value",
    },
    "endpoints.remote.endpoint": {
        "Remote.__init__.http": "http_client",
        "Remote._told.streaming": "raw_events",
        "Remote._told.asked": "error_context",
        "Remote._told.meant": "resource",
        "Remote._events.streaming": "raw_events",
        "Remote._events.asked": "error_context",
        "Remote._events.meant": "resource",
        "Remote._json.within": "conversation_id",
        "Remote._sent.within": "conversation_id",
        "Remote._streamed.asked": "error_context",
        "_not_found.meant": "resource",
        "_page.listed": "resource",
    },
    "gateway.application": {
        "Gateway.__init__.inspected": "inspector_deps",
        "Gateway.__init__.keys": "authenticator",
        "Gateway.__init__.trouble": "report_store_fault",
        "Gateway.__init__.bounds": "websocket_limits",
        "Gateway._room.of": "expected_tenant",
        "Gateway._room.limited": "is_limited",
        "OnePath.__init__.methods": "routes",
    },
    "gateway.conversations": {
        "create.asked": "context",
        "retrieve.asked": "context",
        "update.asked": "context",
        "delete.asked": "context",
        "add_items.asked": "context",
        "items.asked": "context",
        "item.asked": "context",
        "delete_item.asked": "context",
    },
    "gateway.exchange": {
        "Connection.on_close.call": "callback",
        "Exchange._gathered.most": "max_bytes",
        "Exchange.answer_bytes.form": "content_type",
    },
    "gateway.going": {
        "Going._forget.heard": "live_response",
        "said.partial": "accumulator",
    },
    "gateway.inspecting": {
        "listed.asked": "context",
        "conversation.asked": "context",
        "heard_of.known": "view",
        "heard_of.asked": "context",
        "store_of.asked": "context",
    },
    "gateway.keys": {
        "shared.listed": "entries",
        "buckets.listed": "entries",
    },
    "gateway.metrics": {
        "Metrics.answered.took_s": "duration_s",
        "Metrics.stream.change": "delta",
        "Metrics.store_took.seconds": "duration_s",
        "CombinedMetrics.answered.took_s": "duration_s",
        "CombinedMetrics.stream.change": "delta",
    },
    "gateway.openapi": {
        "answer.words": "description",
    },
    "gateway.page": {
        "page.asked": "context",
        "file.asked": "context",
        "icon.asked": "context",
        "listed.asked": "context",
        "conversation.asked": "context",
    },
    "gateway.queries": {
        "string.said": "text",
        "integer.said": "text",
        "_boolean.said": "text",
        "_included.said": "text",
        "_order.said": "text",
    },
    "gateway.rate_limits": {
        "Window.check.most": "limit",
        "Window.check.what": "description",
    },
    "gateway.refusals": {
        "body_too_large.most": "max_bytes",
        "head_too_large.most": "max_bytes",
        "too_many_items.most": "maximum",
        "foreign_host.said": "text",
        "foreign_origin.said": "text",
        "wrong_type.wanted": "expected",
    },
    "gateway.relaying": {
        "Noticing.stream.change": "delta",
        "relay.answering": "result",
        "relay.noticing": "metrics",
        "_collected.answering": "result",
        "_collected.noticing": "metrics",
        "_passed_on.answering": "result",
        "_passed_on.told": "writer",
        "Told.__init__.noticing": "metrics",
        "Told.end.maybe": "may_be_empty",
        "Watch.__init__.quiet": "send_keepalive",
        "Watch.__init__.every_s": "interval_s",
    },
    "gateway.responses": {
        "create.asked": "context",
        "retrieve.asked": "context",
        "delete.asked": "context",
        "cancel.asked": "context",
        "input_items.asked": "context",
        "compact.asked": "context",
        "count.asked": "context",
    },
    "gateway.routes": {
        "document.asked": "context",
    },
    "gateway.schemas": {
        "number.least": "minimum",
        "number.most": "maximum",
        "whole.least": "minimum",
        "whole.most": "maximum",
        "array.most": "maximum",
        "listed.of": "item_schema",
    },
    "gateway.serving": {
        "address.listening": "listening_socket",
        "run.listening": "listening_socket",
        "run.ending": "stop_event",
        "run.delayed": "report_delay",
        "websockets.named": "options",
    },
    "gateway.standing": {
        "models.asked": "context",
        "model.asked": "context",
        "healthz.asked": "context",
        "readyz.asked": "context",
        "metrics.asked": "context",
    },
    "gateway.websocket": {
        "Counting.answered.took_s": "duration_s",
        "Socket.__init__.house": "deps",
        "Socket.end.ending": "reason",
        "Socket._carry_out.turn": "message",
        "Socket._pass_on.lane": "stream_id",
        "Socket._pass_on.began": "started_s",
        "Socket._chain.lane": "stream_id",
        "Socket._turn.asked": "message",
        "Sockets.holding.socket": "connection",
    },
    "gateway.websocket_messages": {
        "text_of.said": "text",
        "too_many_lanes.most": "maximum",
        "too_many_waiting.most": "maximum",
        "labelled.lane": "stream_id",
        "error_message.lane": "stream_id",
    },
    "pages.conversation": {
        "page.data": "include_data",
        "_article.at": "index",
        "_image.at": "index",
    },
    "pages.inspected": {
        "version.known": "view",
        "conversation.known": "view",
        "together.found": "views",
        "_entry.known": "view",
        "_link.known": "view",
        "_bill.known": "view",
    },
    "pages.inspector": {
        "hash_of.inline": "source",
    },
}

DOCS = {
    "endpoints": """Endpoints: one contract for the Responses and Conversations API, local or remote.

Read `base` first: what an endpoint promises. `factory` chooses the endpoint of a provider.
""",
    "endpoints.base": """The endpoint contract: the Responses and Conversations API as methods.

An endpoint stores chains and conversations: a remote server, or convo itself over a store and
models. Both keep the same promises, down to the errors, and pass the same tests, so callers
never ask which one they have. Errors are converted to the API's error object here.
""",
    "chat.endpoint_factory": """Open the endpoint, the models and the model list of a provider.

A server that speaks the Responses API stores state itself; every other provider gets convo's
own endpoint over the store. Each implementation is imported when it is first needed. A model
that a server calls with its own key reports errors in the client's terms.
""",
    "endpoints.remote": """The endpoint of a remote server, over the openai client.

Bodies travel as plain JSON, because the typed objects of the client drop unknown fields. The
first event of a response must confirm the state that was asked for, else StateIgnored is
raised before anything is shown. The openai client is imported on first use.
""",
    "responses_api": """The Responses and Conversations API as a library over a store and models.

Read `endpoint` (the methods), then `turn` (one streamed response) and `background`.
""",
    "responses_api.background": """Background responses: run without a reader, follow, cancel.

A run starts with a queued link and a lease, and appends its events to a log in the store.
Followers on any replica read that log. One transaction closes the run; it fails when somebody
else closed it first, so a run ends exactly once. The terminal event is built from the link.
""",
    "responses_api.compaction": """Compact a history into one compaction item.

A provider with its own compaction is asked for it; every other model writes a summary. A
history too long for one summary is split. A compaction never makes the input larger, and the
item is encrypted for its tenant. `respond_with_compaction` compacts before a response where
the request asks for it.
""",
    "responses_api.conversations": """Conversations: create, read, update and delete them and their items.

A conversation is a path in the item tree with an id for each item. Reads take no lock; every
change holds the write lease of the conversation, else it fails with `conversation_locked`.
A deleted item takes its body with it: later items are appended again under the same ids.
""",
    "responses_api.deps": """Dependencies and options of the endpoint, its active runs, and the write lock.

`ActiveRuns` knows the responses that this process is producing, so that shutdown can wait for
them. The write lock of a conversation is a lease on the store's clock; a lost lease cannot
lose items, because every transaction names the expected head.
""",
    "responses_api.encryption": """Encrypt and decrypt compaction items, for one tenant.

    convoseal1:gAAAAABnPz...    Fernet over the encoded compaction content

Keys: the setting's passphrase (shared by replicas, encrypts when set), and a key made once in
the database. Both decrypt. The tenant is part of the content; an item of another tenant is
refused exactly as a damaged one.
""",
    "responses_api.endpoint": """Convo's own endpoint: in process, over one tenant's store.

`EmbeddedEndpoint` implements the contract, `EmbeddedService` holds one endpoint per tenant and
runs the sweep: it fails abandoned runs, deletes old events and prunes by TTL.
`EmbeddedConnection` keeps the last response of a `store=false` chain. A stateless server
refuses every field that needs state.
""",
    "responses_api.errors": """Errors of the Responses and Conversations API, word for word.

Clients depend on messages, codes and statuses: keep them equal to the real API's. Messages
have no final full stop here; the error object adds it.
""",
    "responses_api.history": """Load the history before a request, and list items as the API does.

An unknown, deleted, foreign or `store=false` response is "not found", indistinguishably. Calls
and outputs must be paired before a model is called; incomplete items stay stored and are not
sent to the model. Items without an id are listed under one made from their tree node.
""",
    "responses_api.response": """Build the response resource, its events, and the link that is stored.

The resource is built from the link and the output alone, so the last streamed event, the stored
response and a later retrieve cannot differ. `TurnResult` says how a response ended; one
transaction makes it durable.
""",
    "responses_api.truncation": """Fit a model request into the context window.

`truncation=disabled` refuses what does not fit before the model is called; `auto` drops the
oldest whole turns from the request, never from the history. Where the window is unknown or the
count is an estimate, the model's own error decides, and `auto` retries with less. Long inputs
are counted in a thread (30 to 60 ms per MB).
""",
    "responses_api.turn": """One streamed response: prepare, call the model, stream, commit.

Errors before the first event are raised and leave nothing behind. Later errors end the stream
with `response.failed`. The result is durable before the last event is sent. A chat that closes
the stream cancels the turn; a client of a server that disconnects keeps its input and the part
that was sent.
""",
    "responses_api.validation": """Parse and validate requests, input items and metadata.

Every known field has a validator and a table: used by the endpoint, sent to the model, or only
echoed. Unknown fields are refused by name, with the API's message, code and param.
""",
    "server": """The HTTP server: the Responses and Conversations API, and the inspector page.

Read `routes` (every route), `app` (one request) and `server` (the process).
""",
    "server.app": """The ASGI application: authenticate, parse, call the endpoint, respond.

It knows the EndpointService contract only. A ConvoError becomes the API's error object under
its status; any other exception is a bare 500 and reaches the server's log.
""",
    "server.auth": """Authentication: API keys map to tenants; without keys, only local callers.

A keys file has one "NAME SHA256 [admin]" a line and is reloaded when it changes; NAME is the
tenant. An admin key also sees the metrics of the whole server, never another tenant's state.
Without a keys file there is one tenant, and Host and Origin headers must be local (DNS
rebinding, cross-origin requests).
""",
    "server.errors": """Errors of HTTP itself, raised before an endpoint is called.

Messages, codes and statuses are the real API's where they are known.
""",
    "server.http": """One HTTP request and its response: body, query, headers, strict JSON.

JSON is decoded exactly: duplicate keys, NaN, overflowing numbers, deep nesting and too many
values are refused; integers of any length and lone surrogates survive. Every response carries
a request id and its duration; every error is the API's error object.
""",
    "server.inspector": """Routes of the inspector page: its files, and its two JSON calls.

The files are public; the data needs the same key as the API. The calls are not part of the API.
`inspector_data` is imported with the first call.
""",
    "server.inspector_data": """JSON data of the inspector page: sessions, and one conversation.

A superset of `convo inspect --json`: with the order of the tree, figures of each link, and each
distinct request once. Responses in progress come with their text so far.
""",
    "server.metrics": """Prometheus metrics of the server, and of each key's name.

Labels are route templates, statuses, models and token types; never a tenant, an id or a path.
The number of model labels is bounded.
""",
    "server.pages": """Static HTML pages: the inspector, and an exported conversation.

Both are single files without a network: text is escaped, and a content security policy forbids
everything else. The inspector's scripts and style are in `static`, unbundled. The data of a
page is embedded as JSON, so `convo import` reads it back.
""",
    "server.rate_limits": """Rate limits: concurrent requests and requests per minute, per key and process.

A minute is the last sixty seconds. A refused request does not count. Replicas do not share
limits.
""",
    "server.routes": """The route table, its handlers, and the OpenAPI document made from it.

A handler gets a HandlerContext and returns a resource, bytes, or events to stream. A row names
the schemas of its body and response; operation ids are part of the public API.
""",
    "server.schemas": """JSON Schemas of request bodies and responses, for the OpenAPI document.

Request schemas are closed: unknown fields are refused. In a request null means "not given".
Response schemas are open.
""",
    "server.server": """Run the gateway on a socket with uvicorn: bounds, timeouts, shutdown.

The HTTP protocol class limits the size and time of request headers and drops clients that do
not read. At shutdown no new work starts, running responses get the grace time, and the service
records what did not finish.
""",
    "server.sse": """Server-sent events: stream a response, or collect it into one JSON body.

Nothing is sent before the first event, so an early error keeps its HTTP status. Comments keep a
quiet stream alive. A client that disconnects cancels the response at once. Responses in progress
are tracked for the inspector.
""",
    "server.websocket": """The Responses API over a WebSocket: one JSON object a message.

A client sends `response.create` messages; each `stream_id` has its own chain, and turns run one
at a time. Messages that arrive meanwhile are queued, up to a limit. A connection that is too old,
or whose server stops, closes after the running turn.
""",
    "server.websocket_protocol": """WebSocket protocol class for uvicorn: API errors, and a write timeout.

A failed handshake gets the API's error object, and a client that does not read is dropped.
Imported with the first WebSocket, because it loads the websockets package.
""",
}

MOVES = {
    # The key handling of compaction items is searched for as "encryption", and only compaction and deps need it.
    "responses_api.deps": ["endpoints.embedded.edges", "endpoints.embedded.runs", "endpoints.embedded.lock"],
    "responses_api.encryption": ["endpoints.embedded.sealing"],
    # membership is about conversations (their items, ids and resource); response needs one function of it. No cycle:
    # conversations imports base, validation, errors, history, deps. Settles the two `resource` functions as well.
    "responses_api.conversations": ["endpoints.embedded.conversations", "endpoints.embedded.membership"],
    "responses_api.response": ["endpoints.embedded.resource", "endpoints.embedded.ending"],
    # Error factories are used by auth, http, routes, sse, server and websocket_protocol; metrics loads prometheus_client
    # and is used by app and one route; the loopback guard is authentication. What is left is the HTTP message itself.
    "server.http": ["gateway.exchange", "gateway.documents", "gateway.queries"],
    "server.errors": ["gateway.refusals"],
    "server.metrics": ["gateway.metrics"],
    "server.auth": ["gateway.keys", "gateway.callers"],
    # websocket_protocol is imported with the first WebSocket: it loads the websockets package.
    "server.server": ["gateway.serving", "gateway.protocol"],
    "server.websocket_protocol": ["gateway.websocket_protocol"],
    # inspecting and pages.inspected are imported with the first call of the page: they load the inspection views,
    # chat.lookup and chat.preview, which `convo serve` does not need to start.
    "server.inspector": ["gateway.page"],
    "server.inspector_data": ["gateway.inspecting", "pages.inspected"],
    "server.pages": ["pages.inspector", "pages.conversation"],
}

NOTES = """
Decide or do by hand
* pages/static moves to server/static with pages.inspector (it reads Path(__file__).parent / "static"); pyproject's
  package data and tests/pages/test_inspector_file.py (STATIC) name the old folder. Stays free of other languages.
* DOCS holds texts of the packages `endpoints`, `responses_api` and `server` too: move.py writes only modules, so the
  __init__ of a package needs them by hand. Today's `convo.endpoints.embedded` and `convo.endpoints.remote` packages
  re-export (Embedded, Service, Manner, Models, SPECIFIED; Remote, Account): callers import the modules afterwards.
* server.protocol: `type("BoundedHttp", (BoundedHttp,), {"serve": serve})` sets the class attribute by a string, so
  BoundedHttp.serve keeps its name; the class name in the string becomes "BoundedHttpProtocol" by hand.
* dataclasses.replace(...) names fields as keywords: Asking.ask (compacting), Request.generate, Ended.error, Before,
  Asked.ids (gateway.page), Manner.renamed (tests). The script has to follow those.
* move.py aliases `from convo.responses_api import compaction as compacting` in responses_api.endpoint (a name
  `compaction` was imported there): import the functions by name. In validation.object_validator the loop variable
  `field` shadows dataclasses.field (ruff F402): call it `key`.
* LOCAL: responses_api.endpoint imports itertools.count beside tokens.count; after `count_tokens` there is no clash.
  server.app imports starlette's Route as Path: alias it as StarletteRoute; our class is ApiRoute now.
* server.routes: nested handler parameters are `context` now; endpoints.open.open_service has a local function
  `listed` (rename to fetch_models) and a local `manner` (options).
* Model and Catalogue attributes of OnBehalf and Remote (ignored, models, ...) are named in the models part.
* Store, Lease, upkeep, Link and Path attributes used here are named in the stores and core parts. I build on
  Change -> Transaction and Ask -> ModelRequest.

Duplicates to merge (behaviour equal unless said)
* endpoints.embedded.runs.unbroken (await_to_completion) and engine.record.whole: one `shielded` in runtime.
* refusals.unknown_parameter, missing, wrong_value exist word for word in both error modules: server should import
  those of responses_api.errors (gateway imports no concrete endpoint today: decide; else endpoints.base is their home).
  wrong_type differs in its message.
* TERMINAL in listening and relaying, ENDS in remote.answer (with response.cancelled): one TERMINAL_EVENTS in
  endpoints.base. OPEN in ledger and inspecting ("queued", "in_progress"): one OPEN_STATUSES beside Link.
* compacting.NO_TOKENS and opening.NO_TOKENS are equal: one ZERO_USAGE in responses_api.response.
* COUNTED: contract has `personality`, embedded.requests has not, schemas has neither model nor personality; COMPACTED
  stands in requests and schemas. Derive schemas' tuples from the tables of validation.
* turn.Turn._begun and background._begun build the same link but for two arguments.
* websocket_messages writes missing_parameter and invalid_value errors itself, exchange._check_form and openapi both
  name "application/json".
* protocol._refuse and websocket_protocol._refuse write the same raw error response: one function `encode_raw_error`.
* websocket.FLUSHING_S and serving.FLUSHING_S had one name and two meanings (FINAL_SEND_TIMEOUT_S, SHUTDOWN_MARGIN_S).

Inline
* open._make_embedded / _make_remote: the ENDPOINT_FACTORIES table of two; `if provider.endpoint == "remote"` reads better.
* The way of every model call: turn.events -> opening.answer -> compacting.answered -> _fitted -> fitting.answer ->
  _answer_to -> _asked_again: join opening.answer with compacting.answered as one `call_model`, and _answer_to into
  fitting.answer. opening._nothing belongs into it.
* compacting._nothing_else, _announced into _compacting; summarising._half into _summary; requests._conversation_id
  and remote.answer.conversation_id are one function.
* ending.stopped / not_kept / abandoned are constructors of three lines: classmethods of TurnResult would read as
  TurnResult.cancelled(output). background keeps one of them as a value (_make_stop_result).
* pages.inspected._whole (one dict display, one caller), routes.described (functools.cache on build_openapi_document),
  standing.healthz stays.
* application.OnePath / OneSocket exist so that starlette passes (scope, receive, send): go with "Libraries" (starlette).
* edges.EndpointDeps and engine's Deps stay two classes: they share only store, clock and new_id.

Open
* Endpoint.create/retrieve/cancel/compact/delete/follow stay as they are: the API's verbs for responses.
* `Gateway` stays the name of the ASGI application (metrics, docs and CLI texts say gateway).
* `seal_key` stays as setting and parameter (frozen setting serve.seal_key_env); the class is CompactionCipher.
"""
