"""Final names of the core: items, history, tokens, strategies, compaction, inspection, linting, transfer, errors, runtime."""

NAMES = {
    # -- history (items, history) ------------------------------------------------------------------
    "items.canonical": {
        "SERVER_ONLY": "SERVER_FIELDS",
        "SERVER_ONLY_IN_PARTS": "SERVER_PART_FIELDS",
        "EXACT": "CANONICAL_ENCODER",
        "hash_of": "item_hash",
        "normal": "normalize_item",
        "_parts": "_normalize_content",
        "_part": "_normalize_part",
        "_exact": "_canonical_bytes",
    },
    "items.ids": {"LONGEST_ID": "MAX_ID_CHARS", "ID": "ID_PATTERN", "is_id": "is_valid_id"},
    "items.kinds": {
        "ANSWERED_BY": "OUTPUT_BY_CLIENT_CALL",
        "OUTPUTS": "CLIENT_OUTPUT_TYPES",
        "kind": "item_type",
        "is_call": "is_client_call",
        "is_output": "is_client_output",
        "call_id": "get_call_id",
        "is_user": "is_user_message",
        "is_assistant": "is_assistant_message",
    },
    "items.shapes": {"Event": "StreamEvent"},
    "items.text": {
        "ESCAPED": "JSON_ESCAPE",
        "text": "item_text",
        "searchable": "searchable_text",
        "with_characters": "decode_json_escapes",
        "first_words": "item_preview",
        "_character": "_decode_escape",
        "_texts": "_field_texts",
        "_words": "_part_texts",
    },
    "items.wire": {
        "ID_IS_OPTIONAL": "OPTIONAL_ID_TYPES",
        "user": "user_message",
        "assistant": "assistant_message",
        "plain": "to_sendable",
        "resendable": "to_resendable",
    },
    "items.pairing": {
        "PROVIDERS": "OUTPUT_BY_HOSTED_CALL",
        "APPROVALS": "RESPONSE_BY_APPROVAL_REQUEST",
        "PAIRS": "OUTPUT_BY_CALL",
        "Name": "OutputKey",
        "NAMELESS": "TOOL_SEARCH_WITHOUT_ID",
        "outputs_by_call": "output_index_by_call",
        "program_of": "program_call_id",
    },
    "items.partial": {
        "ENDS": "TERMINAL_EVENTS",
        "BEGINS": "START_EVENTS",
        "PIECES": "DELTA_TARGETS",
        "ADDS_PART": "PART_ADDED_EVENTS",
        "STREAMED": "STREAMED_TEXT_DIFFERS",
        "TEXT_DIFFERS": "STREAMED_TEXT_DIFFERS_MESSAGE",
        "StreamedText": "StreamedTextChecksum",
        "Partial": "ResponseAccumulator",
        "_text": "_message_text",
    },
    "items.wellformed": {
        "Types": "FieldTypes",
        "OF_EVENTS": "EVENT_FIELDS",
        "NOTHING": "NONE_TYPE",
        "OF_RESPONSES": "RESPONSE_FIELDS",
        "OF_USAGE": "USAGE_FIELDS",
        "OF_ITEMS": "ITEM_FIELDS",
        "wellformed": "validate_stream_event",
        "_check": "_check_fields",
    },
    "history.compare": {"same": "is_same_item", "common": "common_prefix_length"},
    "history.link": {"Status": "LinkStatus"},
    "history.owner": {
        "Owner": "StrategyInfo",
        "OWNERS": "STRATEGY_INFO",
        "EMBEDDED": "EMBEDDED_URL",
        "HERE": "EMBEDDED_SCOPE",
    },
    "history.remembered": {
        "SECRET": "SECRET_TOOL_FIELDS",
        "IGNORED": "IGNORED_PARAMETER",
        "PROVIDER": "PROVIDER_PARAMETER",
        "OURS": "INTERNAL_PARAMETERS",
        "requested": "client_parameters",
        "honoured": "effective_parameters",
        "storable": "strip_tool_secrets",
        "_public": "_strip_tool",
        "_without_secrets": "_strip_secret_fields",
        "_server": "_strip_server_url",
    },
    "history.tree": {"root": "root_key", "child": "child_key"},
    # -- usage (tokens) ----------------------------------------------------------------------------
    "tokens.counting": {
        "VOCABULARY": "TOKENIZER_ENCODING",
        "IMAGES": "IMAGE_PART_TYPES",
        "IMAGE": "IMAGE_TOKENS",
        "SMALL_IMAGE": "LOW_DETAIL_IMAGE_TOKENS",
        "ENCODED": "BASE64_CHARS_PER_BYTE",
        "MOST_BYTES_A_SIGN": "MAX_BYTES_PER_CHAR",
        "Count": "TokenCount",
        "Vocabulary": "Tokenizer",
        "count": "count_tokens",
        "count_each": "count_item_tokens",
        "count_text": "count_text_tokens",
        "at_most": "max_token_count",
        "_around": "_overhead_texts",
        "_counted": "_count_texts",
        "_each": "_tokens_of_each_text",
        "_whole": "_replace_surrogates",
        "_most": "_max_tokens",
        "_bytes": "_max_utf8_bytes",
        "_without_text": "_non_text_tokens",
        "_parts": "_content_parts",
        "_of_part": "_part_tokens",
        "_of_bytes": "_base64_tokens",
        "vocabulary": "load_tokenizer",
    },
    "tokens.estimate": {
        "BYTES_A_TOKEN": "BYTES_PER_TOKEN",
        "AROUND_AN_ITEM": "ITEM_OVERHEAD_TOKENS",
        "estimate": "estimate_tokens",
    },
    "tokens.models": {
        "REASONING": "REASONING_MODELS",
        "NOT_REASONING": "NON_REASONING_MODELS",
        "seals_reasoning": "has_encrypted_reasoning",
        "TEXT_ALONE": "TEXT_ONLY_MODELS",
        "text_alone": "is_text_only_model",
    },
    "tokens.prices": {"price_of": "find_price", "prices": "load_prices"},
    "tokens.usage": {"_tokens": "_read_token_count"},
    "tokens.windows": {
        "FIGURES": "MODEL_DATA_FILE",
        "DATED": "MODEL_DATE_SUFFIX",
        "YOURS": "SETTINGS_SOURCE",
        "NONE": "NO_WINDOW_SETTINGS",
        "Window": "ModelWindow",
        "window_of": "find_model_window",
        "windows": "load_model_windows",
        "figures": "load_model_data",
    },
    # -- strategies --------------------------------------------------------------------------------
    "strategies.held": {
        "Held": "ConversationState",
        "answered": "last_answer_depth",
        "is_answer": "is_complete_answer",
        "Sent": "RequestInput",
    },
    "strategies.handles": {
        "TURN": "TURN_HANDLE_PATTERN",
        "Wanted": "OwnerSelection",
        "wanted": "select_owner",
        "at_turn": "parse_turn_handle",
        "WORDS": "ID_NAMES",
        "kind_of": "owner_of_handle",
        "_told_apart": "_is_certain_mismatch",
        "_implied": "_implied_strategy",
        "_whose": "_owner_clause",
        "_try": "_flags_hint",
    },
    "strategies.sending": {
        "send": "build_request_input",
        "_whole": "_full_history_input",
        "_delta": "_delta_input",
        "NEAR": "MAX_LOOKBACK_NODES",
        "PATHS": "MAX_CACHED_PATHS",
        "_KNOWN": "_RESENDABLE_CACHE",
        "SENDS": "INPUT_BUILDERS",
        "body": "build_request_body",
        "confirm": "apply_response",
        "interrupt": "apply_cancellation",
        "_forms": "_resendable_items",
        "_each": "_map_not_none",
    },
    "strategies.newest": {
        "OUTPUTS": "OUTPUT_TYPES",
        "newest": "newest_sendable_items",
        "paired": "drop_unpaired_items",
        "latest_outputs": "drop_superseded_outputs",
        "_is_pending_shell": "_is_pending_shell_call",
    },
    "strategies.retrying": {
        "Resend": "RetryAction",
        "Verdict": "RetryDecision",
        "may_resend": "decide_retry",
        "AFTER_DOUBT": "RETRY_WHEN_OUTCOME_UNKNOWN",
        "UNASKED": "UNSENT_CODES",
        "never_asked": "is_unsent_request",
    },
    "strategies.reconciling": {
        "after_mark": "items_after_confirmed",
        "_lacking": "_missing_at_owner",
        "_is": "_is_same_answer",
    },
    "strategies.branching": {
        "retry": "undo_last_answer",
        "undo": "undo_last_turn",
        "_unanswered": "_without_last_input",
        "_before": "_before_last_confirmed_turn",
        "_begun_anew": "_is_restarted_chain",
        "_shorter": "_shorten_path",
        "floor": "compaction_depth",
        "_folds": "_is_compaction",
        "_after_last_user": "_last_user_depth",
        "_turn_start": "_last_turn_start",
        "_item": "_item_at",
    },
    "strategies.rewinding": {"rewind": "rewind_to_depth", "_on_a_chain": "_rewind_chain"},
    "strategies.replacing": {
        "replaced": "replace_history",
        "behind": "items_after_point",
        "fresh": "items_for_owner",
    },
    "strategies.carrying": {
        "SEAL": "SEAL_FIELD",
        "NAMED_SEAL": "PROVIDER_SEAL_PREFIX",
        "OWN_SEAL": "CONVO_SEAL_PREFIX",
        "REFERENCE": "ITEM_REFERENCE",
        "ORDINARY": "NON_TOOL_TYPES",
        "Effect": "LossEffect",
        "Maker": "ItemOrigin",
        "NOBODY": "UNKNOWN_ORIGIN",
        "Said": "TransferItem",
        "Target": "TransferTarget",
        "Loss": "TransferLoss",
        "Carried": "TransferPlan",
        "carry": "plan_transfer",
        "Tell": "RecordLoss",
        "Report": "LossCollector",
        "Found": "RuleLoss",
        "Rule": "TransferRule",
        "RULES": "TRANSFER_RULES",
        "_formed": "_convert_item",
        "_reasoning": "_check_plain_reasoning",
        "_sealed": "_check_encrypted",
        "_seal_of_nobody": "_check_unknown_sealer",
        "_hosted": "_check_hosted_tool_trace",
        "_is_trace": "_is_hosted_tool_trace",
        "_referred": "_check_reference",
        "_at_home": "_drop_uploaded_files",
        "_uploaded": "_is_uploaded_file",
        "_without_id": "_drop_id",
        "_as_words": "_convert_incomplete",
        "_follow": "_drop_traces_without_reasoning",
        "_pair": "_check_call_pairs",
        "_answered": "_has_call",
        "_sealer": "_find_sealer",
        "_can_open": "_can_decrypt",
    },
    # -- compaction --------------------------------------------------------------------------------
    "compaction.planning": {
        "Mode": "CompactionMode",
        "Way": "CompactionMethod",
        "Wish": "CompactionOptions",
        "Standing": "HistorySnapshot",
        "Plan": "CompactionPlan",
        "plan": "plan_compaction",
        "instead": "plan_from_items",
        "windows": "build_replacements",
        "_check_settled": "_check_no_pending_calls",
        "_cut": "_compacted_count",
        "_foldable": "_is_compactable",
        "_way": "_choose_method",
        "_check_previous": "_check_previous_response",
        "_sealed": "_has_compaction_item",
        "_fewer": "_nothing_to_compact_hint",
    },
    "compaction.due": {
        "At": "CompactionThreshold",
        "due": "tokens_if_over_threshold",
        "at_tokens": "threshold_tokens",
    },
    "compaction.truncating": {"within": "truncate_to_fit", "last_turn": "keep_last_turn"},
    "compaction.folding": {
        "SAID": "MAX_USER_MESSAGE_TOKENS",
        "Fold": "HistorySplit",
        "fold": "split_for_summary",
        "_begin_of_end": "_kept_start",
        "_newest": "_newest_that_fit",
    },
    "compaction.view": {
        "Open": "DecryptCompaction",
        "last_compaction": "last_compaction_index",
        "seen": "items_shown_to_model",
        "opened": "expand_compaction",
        "covered": "covered_message_digests",
        "_stays": "_is_user_or_instruction",
    },
    "compaction.sealed": {
        "VERSION": "COMPACTION_VERSION",
        "DIGITS": "SHORT_DIGEST_DIGITS",
        "Sealed": "CompactionContent",
        "short": "short_digest",
        "dumps": "encode_compaction",
        "loads": "decode_compaction",
    },
    "compaction.summary": {
        "HEAD": "SUMMARY_HEADING",
        "ASKED_FOR": "SUMMARY_INSTRUCTIONS",
        "LONGEST": "MAX_ITEM_CHARS",
        "SPEAKERS": "ROLE_LABELS",
        "UNSEEN": "PART_PLACEHOLDERS",
        "Summariser": "SummaryRequest",
        "summariser": "build_summary_request",
        "summary_in": "extract_summary",
        "stands_for": "summary_message",
        "_lines": "_transcript_lines",
        "_speaker": "_speaker_label",
        "_words": "_transcript_text",
        "_listed": "_list_or_empty",
        "_clipped": "_clip_middle",
    },
    "compaction.cutting": {
        "APPROVAL": "APPROVAL_REQUEST_TYPE",
        "APPROVED": "APPROVAL_RESPONSE_TYPE",
        "cuts": "cut_points",
        "turns": "turn_starts",
        "_begins": "_is_turn_start",
        "_crossed": "_crossing_pair_counts",
        "_span": "_add_span",
        "_pair": "_pair_id",
        "_string": "_string_or_none",
    },
    # -- inspect -----------------------------------------------------------------------------------
    "inspection.known": {"Known": "ConversationView"},
    "inspection.places": {"Place": "IndexedNode", "Places": "PathIndex"},
    "inspection.figures": {
        "Figures": "LinkStats",
        "figures": "compute_link_stats",
        "_answer": "_output_preview",
        "_words": "_preview_or_empty",
        "_error": "_error_message",
    },
    "inspection.bill": {"Bill": "UsageTotals", "bill": "sum_link_usage", "cost_of": "link_cost_usd"},
    "inspection.chart": {
        "Cell": "ChartCell",
        "Share": "InputTokenShare",
        "share": "input_token_share",
        "most": "max_input_tokens",
    },
    "inspection.snippet": {"BEFORE": "CHARS_BEFORE_MATCH", "snippet": "search_snippet", "_folded": "_fold_case"},
    "inspection.forks": {
        "Row": "LinkRow",
        "children": "children_by_parent",
        "rows": "iter_link_rows",
        "line_to": "ancestor_ids",
        "_without_circles": "_break_cycles",
        "_drawn": "_sibling_rows",
    },
    "inspection.strung": {"ANSWERED": "ANSWERED_STATUSES", "strung": "order_by_conversation"},
    "inspection.walked": {
        "Walked": "RemoteChain",
        "walked": "build_remote_chain",
        "Outputs": "OutputFinder",
        "_key": "_key_at",
        "_names": "_item_identities",
        "_link": "_link_from_response",
    },
    "inspection.shape": {
        "LONG": "MAX_INLINE_PATH_KEYS",
        "as_json": "conversation_to_json",
        "_link": "_inspected_link_to_json",
        "provider_of": "link_provider",
        "_path": "_path_keys",
        "_added": "_output_keys",
    },
    "inspection.document": {
        "CONVERSATION": "CONVERSATION_OBJECT",
        "ITEM": "ITEM_OBJECT",
        "LINK": "LINK_OBJECT",
        "VERSION": "DOCUMENT_VERSION",
        "COMMENT_WITHOUT": "COMMENT_WITHOUT_DATA",
        "Document": "ConversationDocument",
        "head_of": "document_header",
        "as_whole": "document_to_json",
        "as_lines": "document_to_lines",
        "from_whole": "document_from_json",
        "from_lines": "document_from_lines",
        "_head": "_parse_header",
        "HEAD": "HEADER_FIELD_TYPES",
        "_document": "_build_document",
        "written": "links_to_json",
        "_written": "_link_to_json",
        "link_of": "link_from_json",
        "KINDS": "LINK_FIELD_TYPES",
        "_fits": "_is_valid_link",
        "_can_be_kept": "_is_valid_unicode",
        "HALF": "SURROGATE",
        "END_OF_TIME": "MAX_TIMESTAMP_S",
        "_is_time": "_is_timestamp",
        "STATUSES": "LINK_STATUSES",
        "line": "format_json_line",
        "embedded": "document_to_embedded_json",
        "harmless": "dump_html_safe_json",
    },
    "inspection.passages": {
        "Form": "PassageForm",
        "WORDS": "PART_TEXT_FIELDS",
        "UNREADABLE": "UNPRINTABLE",
        "title": "item_title",
        "passages": "item_passages",
        "legible": "replace_unprintable",
        "_pieces": "_iter_passages",
        "_output": "_output_passages",
        "_parts": "_content_passages",
        "_part": "_part_passages",
        "_json": "_format_json",
    },
    "inspection.window": {
        "Part": "ContextPart",
        "Filling": "ContextUsage",
        "ENDPOINT": "COUNTED_BY_ENDPOINT",
        "ESTIMATE": "COUNTED_BY_ESTIMATE",
        "KINDS": "ITEM_CATEGORIES",
        "requested": "request_parts",
        "by_kind": "category_parts",
        "filled": "sum_context_usage",
        "as_json": "context_usage_to_json",
        "_around": "_tool_and_instruction_parts",
        "_items": "_items_part",
        "_count": "_flag_estimate",
    },
    "inspection.coming": {"Coming": "NextRequest", "next_as_json": "next_request_to_json"},
    "inspection.sides": {
        "Mark": "DiffStatus",
        "Pair": "DiffPair",
        "Compared": "HistoryDiff",
        "compared": "diff_histories",
        "as_json": "history_diff_to_json",
        "_rest": "_diff_pairs",
    },
    "inspection.requests": {
        "SHOWN_FIRST": "PROMPT_FIELD_ORDER",
        "LEAST_CACHED": "MIN_CACHED_TOKENS",
        "STEP": "CACHE_STEP_TOKENS",
        "OTHERWISE": "OTHER_CACHE_RULE_MODELS",
        "AROUND": "EXCERPT_CONTEXT_CHARS",
        "Request": "SentRequest",
        "Parted": "RequestDiff",
        "in_order": "sort_request_fields",
        "canonical": "canonical_request_bytes",
        "parted": "diff_requests",
        "alike": "count_common_prefix_tokens",
        "kept": "max_cached_tokens",
        "as_json": "request_diff_to_json",
        "_items_alike": "_count_common_items",
        "_shared": "_common_text",
        "_words": "_text_or_json",
    },
    "inspection.pointing": {
        "Order": "KeyOrder",
        "Nothing": "Missing",
        "NOTHING": "MISSING",
        "text": "sorted_json_text",
        "first_path": "first_difference_path",
        "begin_alike": "common_prefix_size",
        "written": "format_json_path",
        "at": "value_at_path",
        "_within": "_first_difference_below",
        "_indexed": "_index_getter",
        "_same": "_is_same_scalar",
    },
    "inspection.drift": {"drift": "describe_drift", "_items": "_format_item_count"},
    "inspection.redacting": {
        "OWN": "CUSTOM_KIND",
        "WORDS_OF_THE_API": "API_WORD_FIELDS",
        "PLAIN_WORD": "API_WORD",
        "Replaced": "SecretReplacement",
        "Redacted": "RedactionResult",
        "redact": "redact_document",
        "_redacted": "_redact_document_parts",
        "Pen": "Redactor",
        "total": "count_replacements",
        "_is_card": "_is_card_number",
        "_json_in": "_parse_json_container",
    },
    "inspection.secrets": {
        "MARK": "PLACEHOLDER_PREFIX",
        "Pattern": "SecretPattern",
        "Rule": "SecretRule",
        "luhn": "is_luhn_valid",
        "mod_97": "is_iban_valid",
        "SHORTEST_IPV6": "MIN_IPV6_CHARS",
        "of_somebody": "is_machine_address",
        "_issued": "_issued_token_pattern",
        "NAMES": "SECRET_NAMES",
        "RULES": "SECRET_RULES",
    },
    "inspection.encoded": {
        "Telling": "RedactText",
        "INLINE": "DATA_URL",
        "RUN": "BASE64_RUN",
        "BYTES": "BASE64_TEXT",
        "LONG": "MIN_FILE_CHARS",
        "ALPHABET": "URL_SAFE_TO_STANDARD",
        "ESCAPED": "ASCII_ESCAPE",
        "MEANT": "ESCAPED_CHARS",
        "WORD": "NON_SPACE",
        "PERCENT": "PERCENT_ESCAPE",
        "decoded": "decode_base64_text",
        "encoded": "encode_base64_text",
        "is_file": "is_base64_file",
        "in_one_line": "join_base64_lines",
        "runs_told": "redact_base64_runs",
        "escapes_told": "redact_escapes",
        "_percent_told": "_redact_percent_escapes",
        "_sign": "_unescape_char",
    },
    # -- lint --------------------------------------------------------------------------------------
    "inspection.linting.finding": {
        "Fault": "LintIssue",
        "of_items": "item_issues",
        "Finding": "LintFinding",
        "Change": "RepairChange",
    },
    "inspection.linting.view": {
        "ANSWERED": "ANSWERED_STATUSES",
        "Step": "OutputSpan",
        "View": "LintView",
        "PAIRED": "COUNTERPART_TYPES",
        "viewed": "lint_view_of_conversation",
        "bare": "lint_view_of_file",
        "own_here": "with_client_owner",
        "cut_off": "is_incomplete_item",
        "named": "counterpart_id",
        "is_models": "is_model_item",
        "NOT_THE_MODELS": "NON_MODEL_TYPES",
        "_anchor": "_find_anchor",
        "_steps": "_find_output_spans",
        "Edits": "ItemEdits",
        "drop": "drop_items",
        "edited": "apply_edits",
    },
    "inspection.linting.rules": {
        "Check": "RuleCheck",
        "Mend": "RuleFix",
        "Rule": "LintRule",
        "RULES": "LINT_RULES",
        "BY_CODE": "LINT_RULE_BY_CODE",
        "LEFT_OPEN": "UNCHECKED_REASONS",
        "lint": "lint_history",
        "unjudged": "list_unchecked_rules",
    },
    "inspection.linting.ids": {
        "NAME_ANOTHER": "FOREIGN_ID_TYPES",
        "duplicate_item_id": "check_duplicate_item_id",
        "drop_copies": "fix_duplicate_item_id",
    },
    "inspection.linting.shapes": {
        "ROLES": "MESSAGE_ROLES",
        "_words": "_is_string",
        "_words_or_parts": "_is_string_or_parts",
        "_there": "_is_present",
        "_a_role": "_is_role",
        "NEEDS": "REQUIRED_FIELDS",
        "malformed_item": "check_malformed_item",
        "_lacking": "_check_required_fields",
        "_lacks": "_describe_wrong_field",
    },
    "inspection.linting.arguments": {
        "FIELD": "ARGUMENTS_FIELD",
        "CLOSES": "CLOSING_BRACKETS",
        "SHOWN": "MAX_SHOWN_CHARS",
        "invalid_arguments": "check_invalid_arguments",
        "close_arguments": "fix_invalid_arguments",
        "mended": "repair_arguments",
        "_first": "_first_json_value",
        "closed": "close_json_object",
        "_longest": "_close_whole_text",
        "_wrong": "_describe_invalid_arguments",
        "_breaks_off": "_is_truncated",
    },
    "inspection.linting.pairs": {
        "CODE": "CALL_WITHOUT_OUTPUT",
        "INTERRUPTED": "INTERRUPTED_MESSAGE",
        "call_without_output": "check_call_without_output",
        "output_without_call": "check_output_without_call",
        "close_calls": "fix_call_without_output",
        "_second_outputs": "_check_superseded_outputs",
        "_answer": "_answer_noun",
        "_call": "_call_noun",
        "_field": "_pair_id_field",
        "_called_by": "_program_call_indexes",
        "_batches": "_batch_ends",
        "_words": "_type_words",
        "_plain": "_output_builder",
        "_of_a_shell": "_shell_output",
        "_of_a_patch": "_patch_output",
        "_of_a_local_shell": "_local_shell_output",
        "_of_an_approval": "_approval_response",
        "CLOSED_BY": "INTERRUPTED_OUTPUTS",
    },
    "inspection.linting.owners": {
        "KEPT_S": "RESPONSE_LIFETIME_S",
        "SOON_S": "EXPIRY_NOTICE_S",
        "store_false_in_chain": "check_store_false_in_chain",
        "anchor_expired": "check_anchor_expired",
        "anchor_expires_soon": "check_anchor_expires_soon",
        "instructions_absent": "check_instructions_absent",
        "unknown_age": "explain_unknown_age",
        "go_back": "fix_store_false_in_chain",
        "back": "continue_before",
        "leave": "move_to_local_store",
        "send_again": "fix_instructions_absent",
        "_from": "_continue_from",
        "_owned_here": "_own_locally",
        "_owners": "_server_spans",
    },
    "inspection.linting.thoughts": {
        "reasoning_without_follower": "check_reasoning_without_follower",
        "reasoning_id_replayed": "check_reasoning_id_replayed",
        "missing_summary": "check_missing_summary",
        "missing_phase": "check_missing_phase",
        "drop_thoughts": "drop_reasoning",
        "add_summary": "fix_missing_summary",
        "add_phase": "fix_missing_phase",
        "without": "without_reasoning",
        "_unnamed": "_without_optional_id",
        "_says_itself": "_has_content",
        "_model": "_origin_model",
        "_name": "_reasoning_label",
    },
    "inspection.linting.seals": {
        "CODE": "SEALED_ELSEWHERE",
        "SEAL": "ENCRYPTED_FIELD",
        "NAMED": "PROVIDER_SEAL",
        "GATEWAYS": "GATEWAY_SEAL",
        "DATED": "SNAPSHOT_DATE",
        "sealed_elsewhere": "check_sealed_elsewhere",
        "unknown_makers": "explain_unknown_sealers",
        "drop_sealed": "fix_sealed_elsewhere",
        "_sealed": "_sealed_items",
        "_known": "_is_sealer_known",
        "_foreign": "_describe_foreign_sealer",
        "_model": "_without_snapshot_date",
    },
    "inspection.linting.compactions": {
        "TRIGGER": "COMPACTION_TRIGGER",
        "misplaced_compaction": "check_misplaced_compaction",
        "make_room": "fix_misplaced_compaction",
        "_between_halves": "_check_compaction_in_pair",
        "_why": "_drop_reason",
    },
    "inspection.linting.mending": {
        "Mended": "RepairResult",
        "mended": "repair_view",
        "for_a_session": "repair_for_session",
        "for_a_file": "repair_for_file",
        "STAYS": "UNCHANGED_SOURCES",
        "_round": "_repair_round",
        "_carried_out": "_apply_fix",
    },
    "inspection.linting.report": {"Report": "LintReport", "report": "build_lint_report"},
    "inspection.linting.sarif": {
        "SCHEMA": "SARIF_SCHEMA_URL",
        "INDEX": "SARIF_RULE_INDEX",
        "sarif": "build_sarif",
        "_rules": "_sarif_rules",
        "_open": "_sarif_notifications",
        "_result": "_sarif_result",
        "_in_file": "_physical_location",
        "_rule": "_rule_reference",
    },
    "inspection.linting.lines": {
        "SPACE": "JSON_WHITESPACE",
        "DECODER": "JSON_DECODER",
        "lines": "find_item_lines",
        "_starts": "_item_starts",
        "_member": "_member_start",
        "_end": "_value_end",
        "_value": "_decode_value",
        "_skip": "_skip_whitespace",
    },
    "inspection.linting.exposed": {
        "CODE": "SECRET_IN_STATE",
        "KINDS": "SECRET_KIND_NAMES",
        "SEALED": "OPAQUE_FIELDS",
        "SHORTEST": "MIN_SECRET_CHARS",
        "CACHED": "MAX_CACHED_CHARS",
        "PLAIN_NAME": "IDENTIFIER",
        "Exposed": "ExposedSecret",
        "exposed_in": "find_exposed_secrets",
        "_walk": "_iter_secrets",
        "_step": "_path_step",
        "_named": "_kind_by_field_name",
        "_kind": "_kind_of_text",
        "_kind_of": "_match_secret_kind",
        "_kind_of_short": "_match_secret_kind_cached",
        "secret_in_state": "check_secret_in_state",
        "leave_in_state": "fix_secret_in_state",
    },
    # -- transfer ----------------------------------------------------------------------------------
    "transfer.compacting": {
        "ANSWERED": "ANSWERED_STATUSES",
        "TRIGGER": "COMPACTION_TRIGGER_ITEM",
        "COMPACTION": "COMPACTION_PARAMETER",
        "Made": "PreparedCompaction",
        "Compacted": "CompactionResult",
        "made": "prepare_compaction",
        "put": "apply_compaction",
        "_standing": "_snapshot_history",
        "_stored": "_stored_responses",
        "_measured": "_count_before_and_after",
        "_sent": "_countable_items",
        "_of_conversation": "_count_conversation",
        "_link": "_compaction_link",
        "_in_place": "_compact_in_place",
        "_deleted_again": "_delete_output",
        "_elsewhere": "_compact_into_new_conversation",
        "_to_confirm": "_confirmation_required",
    },
    "transfer.summing": {
        "UNKNOWN_PATH": "COMPACTION_UNSUPPORTED_STATUSES",
        "GONE": "PREVIOUS_RESPONSE_NOT_FOUND",
        "SPLITS": "MAX_SUMMARY_SPLITS",
        "Shorter": "CompactionOutput",
        "shorter": "run_compaction",
        "Summed": "SummaryResult",
        "collected": "collect_response",
        "_body": "_compact_body",
        "_other": "_fallback_plan",
        "_summary": "_summarize",
        "_summed": "_parse_summary",
        "_too_long": "_is_window_exceeded",
        "_half": "_middle_cut_point",
        "_together": "_add_usage",
    },
    "transfer.branches": {
        "SUFFIX": "BRANCH_SUFFIX",
        "branched": "branch_kept_on_success",
        "Undo": "RemoveBranch",
        "_unless_it_came": "_remove_unless_committed",
        "_twin": "_branch_session",
        "_copy": "_branch_replay_file",
        "_holds": "_has_content",
    },
    "transfer.shortening": {
        "MANAGING": "CONTEXT_MANAGEMENT_HOSTS",
        "GROWTH": "RETRY_GROWTH_FACTOR",
        "Due": "CompactionDue",
        "Shortening": "AutoCompaction",
        "is_compaction": "is_compaction_link",
        "_ends_compacted": "_is_just_compacted",
        "_left_to_the_endpoint": "_request_endpoint_compaction",
        "_manages": "_has_context_management",
    },
    "transfer.taking": {
        "Source": "ConversationSource",
        "taken": "load_source",
        "Owned": "OwnerHistory",
        "_handle": "_owner_handle",
        "_instructions": "_source_instructions",
        "_at_owner": "_read_from_owner",
        "_items": "_read_conversation_items",
        "_through": "_links_on_path",
        "_said": "_to_transfer_items",
        "_makers": "_item_origins",
    },
    "transfer.handing": {
        "Wish": "ConvertDestination",
        "worth_it": "check_convertible",
        "hand_over": "convert_conversation",
        "_session": "_new_session",
        "_to_file": "_convert_to_file",
        "_file": "_choose_file",
        "_is_left": "_is_unclaimed_copy",
        "_holds": "_file_holds_path",
        "_to_conversation": "_convert_to_conversation",
    },
    "transfer.seeding": {
        "AT_ONCE": "SEED_BATCH_ITEMS",
        "Seeded": "SeededConversation",
        "seeded": "seed_conversation",
        "forget": "delete_seeded_conversation",
    },
    "transfer.in_chat": {"with_owner": "convert_chat"},
    "transfer.beside": {"NAMES": "MAX_NAME_ATTEMPTS", "Beside": "SessionWriter"},
    "transfer.databases": {
        "Row": "DatabaseRow",
        "Database": "ForeignDatabase",
        "documents_of": "read_database",
        "READERS": "DATABASE_READERS",
        "_as_written": "_read_checked",
        "_opened": "_open_read_only",
    },
    "transfer.agents_sessions": {
        "documents": "read_agents_sessions",
        "_document": "_agents_session_document",
        "_item": "_parse_item",
    },
    "transfer.llm_logs": {"documents": "read_llm_logs"},
    "transfer.llm_messages": {
        "CHAIN": "MESSAGES_SQL",
        "PARTS": "PARTS_SQL",
        "ALONE": "ITEM_BUILDERS",
        "threads": "read_llm_threads",
        "call": "function_call_item",
        "output": "function_call_output_item",
        "_document": "_thread_document",
        "_items": "_message_items",
        "_message": "_build_message",
        "_content": "_content_parts",
        "_piece": "_resolve_text_ref",
        "_thought": "_reasoning_items",
        "_call": "_call_items",
        "_result": "_result_items",
    },
    "transfer.llm_responses": {
        "RESPONSES": "RESPONSES_SQL",
        "FRAGMENTS": "FRAGMENTS_SQL",
        "ATTACHMENTS": "ATTACHMENTS_SQL",
        "conversations": "read_llm_conversations",
        "_document": "_conversation_document",
        "_turn": "_response_items",
        "_system": "_system_prompt",
        "_fragments": "_fragment_texts",
        "_rows": "_rows_if_table",
    },
    "transfer.llm_attached": {
        "attachment": "read_attachment",
        "part": "attachment_part",
        "fragment": "read_fragment",
        "seconds": "parse_llm_time",
        "_named": "_placeholder_part",
    },
    "transfer.writing": {
        "TICKS": "BACKTICK_RUN",
        "FORMS": "PASSAGE_RENDERERS",
        "replay": "render_replay",
        "jsonl": "render_jsonl",
        "markdown": "render_markdown_export",
        "_facts": "_header_blocks",
        "_prose": "_render_prose",
        "_thought": "_render_quote",
        "_code": "_inline_code",
        "_fenced": "_render_fence",
        "_image": "_render_image",
        "_aside": "_render_aside",
    },
    "transfer.reading": {
        "SQLITE": "SQLITE_HEADER",
        "TAKES": "IMPORT_FORMATS",
        "FORMS": "DOCUMENT_PARSERS",
        "documents_in": "read_documents",
        "document_in": "parse_conversation_document",
        "_list": "_parse_list",
        "_objects": "_parse_objects",
        "_one": "_parse_object",
        "_page": "_parse_page",
        "_markdown": "_parse_markdown",
        "_only_read": "_no_data_error",
        "_of_items": "_parse_items",
        "_json": "_load_json",
        "_bytes": "_read_bytes",
        "_text": "_decode_text",
    },
    "transfer.keeping": {
        "Answers": "ImportDefaults",
        "keep": "import_document",
        "session_id_of": "imported_session_id",
        "came_before": "find_imported_sessions",
        "wish": "imported_session_name",
        "_same": "_find_continued_session",
        "_new": "_missing_links",
    },
    "transfer.run_states": {
        "OWNERS": "SERVER_STATE_FIELDS",
        "document": "document_from_run_state",
        "items_of": "run_state_items",
        "_asks": "_is_approval_item",
    },
    "transfer.racing": {
        "ORDER": "RACE_ORDER",
        "ANSWERED": "ANSWERED_STATUSES",
        "SCRATCH_NAME": "RACE_NAME_PREFIX",
        "Lap": "RaceTurn",
        "Lane": "RaceResult",
        "Course": "RacePlan",
        "unheard": "ignore_progress",
        "Watch": "RaceObserver",
        "race": "run_race",
        "_lane": "_run_strategy",
        "_lap": "_run_turn",
        "_held": "_session_lease",
        "_remove_leftovers": "_remove_killed_races",
        "_kept_there": "_is_stored_response",
        "Tally": "CountingEndpoint",
    },
    # -- errors and runtime ------------------------------------------------------------------------
    "errors": {
        "LONGEST_SHOWN": "MAX_SHOWN_HANDLE_CHARS",
        "Usage": "InvalidUsage",
        "BadSettings": "InvalidSettings",
        "BadState": "InvalidRunState",
        "JavaScriptState": "JavaScriptRunState",
        "IllegalMove": "IllegalTransition",
        "Unmendable": "Unrepairable",
        "Refused": "RequestRefused",
        "_newer": "_is_newer_label",
        "_number": "_parse_label",
    },
    "processes": {
        "this_process": "process_identity",
        "is_dead": "is_process_dead",
        "spoken": "describe_process",
        "is_tag_here": "is_local_tag",
        "is_tag_of_dead": "is_dead_process_tag",
        "_machine": "_machine_id",
        "_parts": "_parse_identity",
        "_began": "_start_time_ticks",
    },
    "notices": {
        "Sink": "NoticeSink",
        "_SINK": "_NOTICE_SINK",
        "notify": "send_notice",
        "notices_to": "redirect_notices",
    },
    "temporary": {
        "FILE_PREFIX": "TEMPORARY_FILE_PREFIX",
        "FOREIGN_AGE_S": "FOREIGN_LEFTOVER_AGE_S",
        "PRIVATE_FILE": "PRIVATE_FILE_MODE",
        "PRIVATE_FOLDER": "PRIVATE_FOLDER_MODE",
        "NAME": "TEMPORARY_NAME",
        "open_temporary": "open_temporary_file",
        "make_folder": "make_temporary_folder",
        "_new_name": "_new_temporary_name",
        "_is_left": "_is_leftover",
    },
}

ATTRIBUTES = {
    # -- history (items, history) ------------------------------------------------------------------
    "items.partial": {
        "StreamedText.take": "add",
        "StreamedText.differs": "has_different_text",
        "StreamedText._streamed": "_checksums",
        "StreamedText._together": "_total_checksum",
        "Partial.began": "has_output_events",
        "Partial.kept": "incomplete_output",
        "Partial.take": "add",
        "Partial._pieces": "_buffers",
        "Partial._done": "_done_indexes",
        "Partial._settle": "_flush_buffer",
        "Partial._item": "_set_item",
        "Partial._part": "_add_part",
        "Partial._piece": "_add_delta",
        "Partial._add": "_append_text",
        "Partial._parts": "_part_list",
    },
    "history.compare": {"Difference.at": "shared_count"},
    "history.link": {
        "Link.parent": "parent_id",
        "Link.session": "session_id",
        "Link.saw": "input_head",
        "Link.sent": "sent_count",
        "Link.seconds": "duration_s",
        "Link.stored": "is_stored",
    },
    "history.owner": {
        "Owner.words": "description",
        "Owner.handle": "handle_format",
        "Owner.prefix": "handle_prefix",
        "Owner.remembers": "is_server_side",
    },
    "history.prefix": {"Prefix.grow": "append", "Prefix.behind": "shared_element", "Prefix._of": "_from_shared"},
    "history.session": {
        "Session.mark": "confirmed_head",
        "Session.link": "link_id",
        "Session.written": "file_head",
        "Session.use": "use_order",
    },
    "history.tree": {
        "Path.grow": "append",
        "Path.place": "depth",
        "Path.passes": "contains",
        "Path.upto": "up_to",
        "Path.shared": "common_depth",
    },
    # -- usage (tokens) ----------------------------------------------------------------------------
    "tokens.counting": {"Count.estimated": "is_estimate"},
    "tokens.usage": {
        "Usage.input": "input_tokens",
        "Usage.cached": "cached_tokens",
        "Usage.output": "output_tokens",
        "Usage.reasoning": "reasoning_tokens",
        "Usage.written": "cache_write_tokens",
        "Usage.read": "from_json",
    },
    # -- strategies --------------------------------------------------------------------------------
    "strategies.held": {
        "Held.mark": "confirmed_head",
        "Held.unacknowledged": "unconfirmed_nodes",
        "Held.remembers": "is_server_side",
        "Sent.nodes": "node_count",
        "Sent.state": "state_fields",
    },
    "strategies.handles": {"Wanted.last": "use_last_session"},
    "strategies.retrying": {"Verdict.resend": "action", "Verdict.evidence": "reason"},
    "strategies.carrying": {
        "Said.maker": "origin",
        "Said.confirmed": "is_confirmed",
        "Target.remembers": "is_server_side",
        "Loss.why": "reason",
        "Loss.places": "positions",
        "Carried.confirmed": "confirmed_count",
        "Report.at": "recorder_at",
        "Report._found": "_positions",
    },
    # -- compaction --------------------------------------------------------------------------------
    "compaction.planning": {
        "Wish.keep": "keep_turns",
        "Standing.here": "is_embedded",
        "Standing.stored": "stored_responses",
        "Plan.way": "method",
        "Plan.folded": "compacted_items",
        "Plan.kept": "kept_items",
        "Plan.previous": "previous_response_id",
    },
    "compaction.folding": {
        "Fold.standing": "instructions",
        "Fold.folded": "summarized_items",
        "Fold.said": "user_messages",
        "Fold.kept": "kept_items",
    },
    "compaction.sealed": {"Sealed.covers": "covered_digests"},
    # -- inspect -----------------------------------------------------------------------------------
    "inspection.known": {
        "Known.mark": "confirmed_head",
        "Known.places": "path_index",
        "Known.at": "current_link_id",
        "Known.names": "session_names",
        "Known.forks": "has_all_forks",
        "Known.lost": "unreadable_head",
        "Known.run": "open_run",
        "Known.unacknowledged": "unconfirmed_nodes",
    },
    "inspection.places": {
        "Place.before": "parent",
        "Places._places": "_nodes",
        "Places.tokens": "tokens_up_to",
        "Places.back": "last_keys",
        "Places.start": "key_before_last",
    },
    "inspection.open_run": {
        "OpenRun.waits": "pending_call_ids",
        "OpenRun.paused": "is_paused",
        "OpenRun.by": "process",
        "OpenRun.left": "is_orphaned",
    },
    "inspection.figures": {
        "Figures.sent": "sent_count",
        "Figures.saw": "input_count",
        "Figures.used": "usage",
        "Figures.said": "input_preview",
        "Figures.answered": "output_preview",
        "Figures.full": "is_full_history",
    },
    "inspection.bill": {
        "Bill.requests": "request_count",
        "Bill.used": "usage",
        "Bill.again": "resent_tokens",
    },
    "inspection.chart": {
        "Cell.sent": "is_sent",
        "Cell.cached": "is_cached",
        "Share.seen": "input_tokens",
        "Share.sent": "sent_tokens",
        "Share.cached": "cached_tokens",
        "Share.cells": "to_cells",
    },
    "inspection.forks": {"Row.begins": "starts_branch"},
    "inspection.walked": {
        "Walked.places": "path_index",
        "Outputs._names": "_identities",
        "Outputs._at": "_indexes",
        "Outputs._next": "_next_index",
    },
    "inspection.document": {"Document.acknowledged": "confirmed_count"},
    "inspection.passages": {"Passage.words": "text"},
    "inspection.window": {
        "Part.items": "item_count",
        "Filling.by": "counted_by",
        "Filling.left": "free_tokens",
    },
    "inspection.coming": {
        "Coming.owner": "owner_handle",
        "Coming.before": "prepended_nodes",
        "Coming.filling": "context_usage",
    },
    "inspection.sides": {
        "Pair.mark": "status",
        "Compared.same": "common_count",
        "Compared.rest": "pairs",
        "Compared.alike": "is_equal",
        "Compared.many": "count_pairs",
    },
    "inspection.requests": {
        "Request.before": "prepended_items",
        "Request.shown": "input_items",
        "Parted.byte": "byte_offset",
        "Parted.sizes": "sizes_bytes",
        "Parted.prefix": "common_prefix",
        "Parted.expected": "expected_cached_tokens",
        "Parted.reported": "reported_usage",
    },
    "inspection.redacting": {
        "Replaced.where": "location",
        "Replaced.times": "occurrences",
        "Redacted.replaced": "replacements",
        "Redacted.unseen": "unchecked_locations",
        "Pen.where": "location",
        "Pen.unseen": "unchecked_locations",
        "Pen._names": "_placeholder_by_secret",
        "Pen._numbers": "_count_by_kind",
        "Pen.at": "at_location",
        "Pen.value": "redact_value",
        "Pen.field": "redact_field",
        "Pen.text": "redact_text",
        "Pen._named": "_redact_secret_field",
        "Pen._words": "_apply_rules",
        "Pen._replaced": "_replace_match",
        "Pen._file": "_redact_data_url",
        "Pen._placeholder": "_make_placeholder",
    },
    "inspection.secrets": {"Rule.fits": "is_valid", "Rule.is_in": "has_match"},
    # -- lint --------------------------------------------------------------------------------------
    "inspection.linting.finding": {
        "Fault.at": "item_index",
        "Fault.link": "link_id",
        "Fault.also": "related_indexes",
        "Fault.mild": "is_warning",
        "Finding.fault": "issue",
        "Change.what": "action",
        "Change.why": "reason",
        "Change.at": "source_index",
    },
    "inspection.linting.view": {
        "Step.begins": "start",
        "Step.ends": "end",
        "View.owned": "server_count",
        "View.partial": "has_unread_items",
        "View.steps": "output_spans",
        "View.waiting": "pending_call_ids",
        "View.sources": "source_indexes",
        "View.exposed": "exposed_secrets",
        "View.remembers": "is_server_side",
        "View.raw": "is_sent_verbatim",
        "View.travels": "sent_flags",
        "View.origins": "origin_links",
        "View.by_kind": "indexes_by_type",
        "View.of_kind": "items_of_type",
        "View.halves": "paired_items",
        "View.answers": "output_indexes",
        "Edits.replaced": "replacements",
        "Edits.behind": "insertions",
    },
    "inspection.linting.rules": {"Rule.mend": "fix", "Rule.beyond": "keeps_server_items"},
    "inspection.linting.report": {
        "Report.open": "unchecked_rules",
        "Report.places": "item_paths",
        "Report.keys": "node_keys",
        "Report.lines": "item_lines",
        "Report.errors": "error_count",
        "Report.warnings": "warning_count",
        "Report.path": "finding_path",
        "Report.line": "finding_line",
        "Report.as_json": "to_json",
        "Report._finding": "_finding_to_json",
    },
    "inspection.linting.exposed": {"Exposed.words": "description"},
    # -- transfer ----------------------------------------------------------------------------------
    "transfer.compacting": {
        "Made.point": "source_path",
        "Made.window": "replacement",
        "Made.before": "count_before",
        "Made.after": "count_after",
        "Compacted.made": "prepared",
        "Compacted.after": "count_after",
        "Compacted.old": "old_handle",
        "Compacted.later": "later_count",
    },
    "transfer.summing": {"Shorter.windows": "replacements", "Summed.words": "text"},
    "transfer.shortening": {
        "Due.bound": "threshold_tokens",
        "Due.window": "window_tokens",
        "Shortening._at": "_threshold",
        "Shortening._own": "_window_settings",
        "Shortening._tried": "_retry_at_tokens",
        "Shortening.due": "check_due",
        "Shortening.shorten": "compact_chat",
    },
    "transfer.taking": {
        "Source.held": "state",
        "Source.said": "transfer_items",
        "Source.without_secrets": "with_redacted_document",
        "Source.document": "to_document",
    },
    "transfer.beside": {"Beside.write": "write_session"},
    "transfer.racing": {
        "Lap.bytes": "request_bytes",
        "Lap.items": "sent_count",
        "Lap.used": "usage",
        "Lap.seconds": "duration_s",
        "Lane.laps": "turns",
        "Lane.bytes": "request_bytes",
        "Lane.items": "sent_count",
        "Lane.used": "usage",
        "Lane.seconds": "duration_s",
        "Course.turns": "messages",
        "Course.edges": "deps",
        "Course.keep": "keep_sessions",
        "Watch.begins": "on_turn_start",
        "Watch.took": "on_turn_end",
        "Watch.ended": "on_strategy_end",
        "Tally.bytes": "request_bytes",
    },
    # -- errors and runtime ------------------------------------------------------------------------
    "errors": {
        "Busy.holder": "process",
        "LimitReached.most": "maximum",
        "LimitReached.timed": "is_time_limit",
        "Unsupported.what": "feature",
        "WindowExceeded.need": "needed_tokens",
        "WindowExceeded.room": "limit_tokens",
        "StoreTooNew.place": "location",
        "StoreTooNew.found": "found_schema",
        "StoreTooNew.known": "known_schema",
        "UnknownSchema.known": "known_labels",
    },
    "clock": {
        "Clock.ticks": "monotonic",
        "SystemClock.ticks": "monotonic",
        "FixedClock.ticks": "monotonic",
        "FixedClock.slept": "sleeps_s",
        "FixedClock.move": "advance",
    },
}

PARAMETERS = {
    "strategies.branching": {"retry.held": "state", "undo.held": "state"},
    "strategies.rewinding": {"rewind.held": "state", "rewind.at": "depth", "rewind.began": "next_link"},
    "strategies.replacing": {"replaced.held": "state", "replaced.window": "replacement"},
    "strategies.reconciling": {"reconcile.held": "state", "after_mark.held": "state"},
    "strategies.held": {"answered.held": "state"},
    "strategies.sending": {
        "send.held": "state",
        "send.seal": "encrypt_reasoning",
        "body.sent": "request_input",
        "confirm.held": "state",
        "confirm.sent": "request_input",
        "interrupt.held": "state",
    },
    "strategies.newest": {"paired.cut": "is_truncated"},
    "strategies.retrying": {"may_resend.answering": "response_started"},
    "strategies.handles": {"wanted.last": "use_last_session"},
    "strategies.carrying": {"carry.said": "items"},
    "compaction.planning": {
        "instead.here": "is_embedded",
        "instead.made": "planned",
        "windows.made": "planned",
        "windows.sizes": "item_tokens",
        "plan.standing": "snapshot",
        "plan.wish": "options",
    },
    "compaction.due": {"due.at": "threshold", "due.used": "usage", "at_tokens.at": "threshold"},
    "compaction.truncating": {"within.sizes": "item_tokens", "within.room": "limit_tokens"},
    "compaction.folding": {
        "fold.sizes": "item_tokens",
        "fold.keep": "keep_tokens",
        "fold.said": "user_message_tokens",
    },
    "compaction.view": {"seen.open_": "decrypt", "covered.open_": "decrypt", "covered.beside": "kept_messages"},
    "compaction.summary": {"summariser.folded": "items"},
    "tokens.prices": {"price_of.own": "price_settings"},
    "tokens.windows": {"window_of.own": "window_settings"},
    "inspection.bill": {"cost_of.own": "price_settings", "bill.own": "price_settings"},
    "inspection.redacting": {"redact.own": "custom_patterns"},
    "inspection.linting.report": {
        "report.places": "item_paths",
        "report.keys": "node_keys",
        "report.lines": "item_lines",
    },
    "transfer.compacting": {
        "made.wish": "options",
        "put.one": "prepared",
        "_in_place.one": "prepared",
        "_elsewhere.one": "prepared",
    },
    "transfer.summing": {"shorter.auto": "allow_fallback", "shorter.made": "planned", "_other.here": "is_embedded"},
    "transfer.shortening": {"Shortening.__init__.at": "threshold", "Shortening.__init__.own": "window_settings"},
    "transfer.handing": {"hand_over.carried": "plan", "hand_over.wish": "destination", "hand_over.beside": "writer"},
    "transfer.keeping": {"keep.answers": "defaults", "keep.beside": "writer"},
    "transfer.llm_responses": {"conversations.besides": "excluded_ids"},
    "transfer.writing": {"jsonl.links": "include_links", "markdown.data": "include_data"},
    "transfer.racing": {"_held.keep": "keep_session"},
    "errors": {
        "Busy.__init__.holder": "process",
        "LimitReached.__init__.most": "maximum",
        "WindowExceeded.__init__.need": "needed_tokens",
        "WindowExceeded.__init__.room": "limit_tokens",
        "Unsupported.__init__.what": "feature",
        "StoreTooNew.__init__.place": "location",
        "StoreTooNew.__init__.found": "found_schema",
        "StoreTooNew.__init__.known": "known_schema",
        "UnknownSchema.__init__.known": "known_labels",
    },
    "processes": {"is_dead.holder": "identity", "spoken.holder": "identity"},
}

DOCS = {
    # -- packages ----------------------------------------------------------------------------------
    "history": """Conversation history: items, the tree they are stored in, sessions and links.

Read `tree` first (keys, nodes and paths), then `records` (strategy, session, link) and `items` (item types and texts).
""",
    "usage": """Token usage and cost: `counting` counts tokens, `models` knows prices and context windows.
""",
    "strategies": """The four state strategies: what a request sends, and what a response changes.

Read `state` first (`ConversationState` and `RequestInput`), then `requests`. Pure functions over frozen values: no I/O.
""",
    "compaction": """Compaction: replace a history by a shorter one without losing what the next turn needs.

Read `window` first (where a history may be cut, and what the model is shown), then `planning`. No I/O.
""",
    "inspect": """Views of a conversation as values: tree, token use, cost, diff, redaction, JSON.

Read `view` first: `ConversationView` holds all that was read about one handle, and every screen and JSON is made from it.
""",
    "lint": """Lint and repair: find state that a server would reject, before it is sent.

Read `rules` first: the table of all rules, each with its check and its fix. Then `model` (`LintView`, `LintIssue`).
""",
    "transfer": """Transfer of conversations: convert, compact, race, import and export.

Read `convert` first. What can be transferred is decided in `convo.strategies.transfer`.
""",
    # -- history -----------------------------------------------------------------------------------
    "history.accumulator": """Accumulation of a response stream: the output so far, and validation of its events.

The final payload of a stream is what is stored. `ResponseAccumulator` replaces it when the stream was cut off, or when
the final payload has no output. `validate_stream_event` comes first: it checks only the fields that are read here, and
raises StreamBroken. Event types that nothing here reads pass unchecked.
""",
    "history.canonical": """Item hash and item digest.

`item_hash` identifies the exact form of an item ("h1:" + SHA-256), `digest` its meaning ("d1:" + SHA-256 of the
normalized item). Items are stored by hash; histories are compared by digest, because the same answer has at least four
forms: response output, request input, `{role, content: [output_text]}` and `{role, content: "text"}`. Both hash
sorted-key ASCII JSON with exact integers (RFC 8785 would merge 2**53 with 2**53 + 1 and rejects lone surrogates).
""",
    "history.items": """Items of the Responses API as plain JSON: types, texts, and the forms in which they are sent.

Items, responses and events stay dictionaries from the wire to the store: a class would drop or guess unknown fields.
An unknown item type is stored, sent and shown like any other. Ids of a server are left out when the client sends an
item again (`to_resendable`): with `store=false` the server does not know them and answers 400.
""",
    "history.pairing": """Pairing of calls with their outputs.

A call and its output share an id. A model may use an id again, so an output belongs to the last call before it with
that id. Hosted tool searches have no id: an output belongs to the last search that has no output yet. A call made by a
hosted program names that program.
""",
    "history.records": """Stored records: `Session` (a chat), `Link` (one model call), `Strategy` and `Scope`.

A link does not copy its input: `input_head` and `head` name the nodes at which input and output end, and `sent_count`
says how many of the last input items were in the request. Items after a session's `confirmed_head` are unconfirmed.
Secrets of hosted tools (headers, tokens, URLs) are stripped from parameters before anything is stored.
""",
    "history.tree": """The item tree: keys, nodes, paths, and comparison of histories.

The key of a node is SHA-256 over the parent's key and the item's hash, so histories with a common prefix share nodes,
and a fork or an edit only adds nodes. Keys start at the tenant's root: tenants share nothing. `Path` and `Prefix` are
immutable; appending shares the list and costs only what is added.
""",
    # -- usage -------------------------------------------------------------------------------------
    "usage.counting": """Token counts: exact with a tokenizer, else estimated; and the usage an endpoint reported.

The tokenizer is o200k from the optional `toktok-rs`. Without it a token is four bytes. Always estimated:

    image           765 tokens (1024 x 1024 pixels in four tiles); 85 with low detail
    file, audio     one token for four bytes
    encrypted text  one token for four bytes

Each item adds four tokens for its role and its bounds. Missing parts of a usage object count as 0; no usage at all is None.
""",
    "usage.models": """Model data: prices, context windows, and abilities known by name.

Figures come from `models.toml`, dated and with sources; settings override them. An unknown price or window is None,
never a guess. Encrypted reasoning is requested only from models that are known to return it; models that are known to
accept only text are sent no images.
""",
    # -- strategies --------------------------------------------------------------------------------
    "strategies.state": """Conversation state, and the owner that a handle belongs to.

`ConversationState` is the value between a session record and every decision of a strategy. All nodes after
`confirmed_head` are unconfirmed, so a failed turn needs no rollback. `resp_` and `conv_` ids belong to the endpoint, a
path is a replay file, anything else is a session's name or id.
""",
    "strategies.requests": """Requests: which items a turn sends, what a response changes, and when to retry.

    replay, session     the whole path, store=false
    conversation        the nodes after `confirmed_head`, conversation=conv_...
    chain               the nodes after `confirmed_head`, previous_response_id=resp_...

`confirmed_head` moves only when a response confirms it. A retry is safe where the endpoint stores nothing; on a
conversation the owner's latest items are read first and merged with `reconcile`.
""",
    "strategies.branching": """Undo, rewind and replacement of a history. Heads move, nothing is deleted.

A client-side history is cut locally. A chain continues from an earlier response, and the next turn forks. Confirmed
items of a conversation cannot be undone here. Nothing goes back before a compaction: that history is another branch.
""",
    "strategies.transfer": """Transfer rules: which items another owner can receive, and the reason for each loss.

    left out    not transferred
    changed     transferred in another form
    not sent    kept in the record, and no longer sent to a model
    kept        transferred unchanged; the new owner may reject it

Every loss has a stable code; nothing is left out silently. Unconfirmed items are converted by the turn that sends them.
""",
    # -- compaction --------------------------------------------------------------------------------
    "compaction.planning": """Compaction planning: when to compact, by which method, and what stays.

    in place    the endpoint compacts its own conversation; the handle stays
    previous    the endpoint of a chain compacts by response id; no item is sent
    input       an endpoint with a compaction API is sent the items
    summary     any model writes a plain summary, which becomes a message of the history

Instructions are never summarized. Nothing is compacted while a call waits for its output. Pure functions, no I/O.
""",
    "compaction.window": """Compacted histories: cut points, summaries, compaction items, and what the model is shown.

A history is cut only where no call and output, and no reasoning and its follower, would be separated. Content of a
compaction item (encrypted by the caller):

    {"v": 1, "tenant": "local", "before": [items], "summary": "...", "after": [items], "covers": ["3f2a9c41d0b7a5e8", ...]}

The last compaction item replaces everything before it; `covers` names the messages it replaces by short digest, so a
client may send them again. A provider's own compaction item stays encrypted and is passed through.
""",
    # -- inspect -----------------------------------------------------------------------------------
    "inspect.view": """ConversationView: everything that is known of one handle, and figures about its links.

A store, a replay file and a remote endpoint each fill in one `ConversationView`. `PathIndex` holds every node of its
paths once and answers depth, estimated tokens and last keys. Unknown figures are None, never 0.
""",
    "inspect.tree": """Link trees: order of rows, and links rebuilt from what an owner reports.

The branch that leads to the head is drawn straight; forks are one step to the right, so depth counts forks and not
links. Links of a conversation get their parents from the order of its items; a remote chain is rebuilt from its
responses and the input items of the last one.
""",
    "inspect.context_window": """Context use: tokens of each part of the next request, and the request itself.

Parts are tools, instructions, items that the owner prepends, and input. Counts are made before sending; an endpoint's
own count replaces them as one figure.
""",
    "inspect.diff": """Diffs: two histories, two requests, two JSON values.

Histories are compared by digest and aligned again after the first difference. Requests are compared byte by byte in
canonical order, because a provider's prompt cache needs an identical prefix.
Cache rule: https://github.com/openai/openai-cookbook, examples/Prompt_Caching_201.ipynb, 1.1
""",
    "inspect.redaction": """Redaction: replace secrets in a document by placeholders.

Every string is searched: texts, field names, arguments, nested JSON, base64, percent and Unicode escapes. A secret gets
the same placeholder everywhere, so references between items survive. Encrypted fields and binary files cannot be
searched and are reported. Sources of the patterns: the issuers' token formats as collected in gitleaks' config/gitleaks.toml
(MIT); RFC 7468 (PEM), 7519 (JWT), 6750 and 7617 (Bearer, Basic), 3986 (user information), 5321 (addresses), 4291 (IPv6);
ISO/IEC 7812 (cards), ISO 13616 (IBAN), E.164 (telephone).
""",
    "inspect.serialize": """JSON and text forms of a conversation: `inspect --json`, export documents, readable passages.

An export document (a JSON object; as JSONL a header line, then one line for each item or link):

    {"object": "convo.conversation", "version": 1,
     "name": "monads", "model": "openai/gpt-5-mini", "instructions": null, "created_at": 1700000000.0,
     "acknowledged": 4,                     number of confirmed items
     "items": [items as they were sent],
     "links": [{"id": "resp_...", "saw": 3, "head": 4, "sent": 1, ...}]}

`saw` and `head` count items. Links of other branches, and the owner, are not in a document. `inspect --json` writes the
whole path to a key as {"through": key} when it is long; `parents` then allows to rebuild it.
""",
    # -- lint --------------------------------------------------------------------------------------
    "lint.model": """Lint values: the view that rules check, the issues they report, and the changes of a repair.

`LintView` says who owns the items and which of them the next request sends; a rule reports only what and where.
Severity, code and fix are in the table of rules.
""",
    "lint.rules": """The lint rules as a table, and `lint_history`, which runs them all.

A code never changes its meaning: users name it in CI. The order is the order of repair: owner and anchor first, then
single items, then pairs. A fix may leave something to a rule below it, never to one above.
""",
    "lint.items": """Lint rules for single items and pairs: required fields, ids, arguments, calls and outputs.

Unknown item types are not checked: they may be newer than this list. Truncated arguments are closed. A call without
output gets an "interrupted" output in its own form, or is dropped where none can be made up (screenshots, hosted calls).
""",
    "lint.reasoning": """Lint rules for reasoning, encrypted content and compaction items.

Reasoning needs the item that follows it, a `summary` list, and the server that made it. Encrypted content is valid only
for the model, organisation and base URL that made it; the link says which, or the prefix that convo writes:

    convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB...      a provider's, passed on by a gateway
    convoseal1:gAAAAAB...                            a gateway's own, valid for all its models
""",
    "lint.chain": """Lint rules for chains and instructions: expired or unstored anchors.

An endpoint keeps a response for at least 30 days, and with `store=false` not at all. A broken chain is repaired by
continuing from the last usable response; without one the local store becomes the owner. Instructions are not inherited
from a previous response.
""",
    "lint.secrets": """Lint rule for secrets in a RunState: findings name the place and the kind, never the value.

The Agents SDK writes the run's context into a state and, with `include_tracing_api_key`, the key for traces.
""",
    "lint.repair": """Repair: apply fixes, one rule at a time, until no rule reports anything.

Each round applies the fix of the first rule in table order that found something. Items that an endpoint owns cannot be
edited: there the history goes back to before the first bad item, or the local store becomes the owner.
""",
    "lint.report": """Lint reports: JSON, SARIF 2.1.0, and the line of each item in a file.

A report also lists rules that could not be checked because too little is known: no finding does not mean valid.
""",
    # -- transfer ----------------------------------------------------------------------------------
    "transfer.compact": """Compaction of a conversation: `prepare_compaction`, then `apply_compaction`.

Nothing changes before `apply_compaction`; it creates the branch that keeps the old history, then replaces the history
in one transaction, and keeps items that were appended meanwhile. A kill leaves the history before or after. The old
history stays available: NAME-before (session), a copy of the file (replay), the old resp_ or conv_ id. A conversation is
compacted in place by its endpoint, else a new one is seeded, which needs consent.
""",
    "transfer.convert": """Conversion of a conversation to another owner.

The source is never changed; the result is a new session, with a new file or conversation where needed. No model is
called. The owner's list is read first, and unconfirmed items of the record are appended. A conversation is seeded 20
items at a time and read back. A file is written before its record, and reused if the command was killed in between.
""",
    "transfer.databases": """Import from SQLite databases of other programs, opened read-only.

    Agents SDK    agent_sessions, agent_messages                    agents/memory/sqlite_session.py of openai-agents 0.24
    llm >= 0.36   threads -> messages (by parent_hash) -> parts     llm/migrations.py and llm/logs.py of llm 0.36
    llm older     conversations -> responses -> tool_calls, tool_results, prompt_fragments, prompt_attachments

A conversation found in both layouts of llm is read from the newer one. Reasoning without text and calls
marked `server_executed` are left out.
""",
    "transfer.export": """Export formats: replay (a list of items), JSONL, Markdown.

Markdown ends with the whole document in a comment, so it can be imported again.
""",
    "transfer.import_": """Import: recognize a file by its content, parse it, and store it as a session.

    [ ... ]                     a replay file: the list of items
    lines of objects            items, or the lines of `convo.inspect.serialize`
    HTML or Markdown of convo   the embedded document; without one it cannot be imported
    RunState                    the items of the run; `convo resume` continues the run itself
    SQLite                      logs of `llm`, or sessions of the Agents SDK

The session id is derived from the document and the requested name, so a repeated import adds only what is missing.
""",
    "transfer.race": """Race: the same turns with every strategy, one strategy after the other, with tokens, bytes and latency.

Each strategy gets a scratch session that is deleted afterwards, with its responses and conversations at the endpoint;
leftovers of a killed race are removed by the next one. The first strategy finds the provider's prompt cache empty.
""",
    # -- runtime and errors ------------------------------------------------------------------------
    "runtime": """Clock, ids, process liveness, notices and temporary files: effects that can be injected.

Decisions take time and ids as arguments; only edges read them. Tests use `FixedClock` and `counting_ids`. A killed
process cannot release what it held: `is_process_dead` recognizes it on the same machine. Temporary files carry the tag
of their process, and the next process removes those of dead ones (other machines: after a day):

    .convo-1f0c9a7e-4711-882193-k3vd0q1z      prefix, process tag, random part
""",
    "errors": """The error tree of convo.

    ConvoError                    exit 1, status 500
    |-- InvalidUsage              exit 2, status 400   arguments or request fields that do not fit together
    |   |-- WrongOwner            a handle, flag or record that belongs to another owner
    |   |-- AmbiguousHandle       a prefix that several handles share
    |   `-- InvalidSettings       an invalid settings file or environment variable
    |       `-- UnknownModel      a model name without a known provider
    |-- NotFound                  exit 5, status 404   an unknown handle
    |-- InputFault                exit 2, status 400   a file or item that cannot be parsed
    |   |-- Unreadable            a file that is missing, a folder, truncated or not permitted
    |   |-- NotCanonical          an item without an exact JSON form
    |   `-- InvalidRunState       a RunState that cannot be parsed, or makes invalid claims
    |       |-- UnknownSchema     a schema version that no release wrote
    |       `-- JavaScriptRunState  a RunState of the JavaScript SDK
    |-- StateFault                exit 1, status 400   the conversation is not in the expected state
    |   |-- Conflict              the head moved since it was read
    |   |-- Busy                  another process is writing this conversation
    |   |-- ItemDeleted           a history needs an item whose body was deleted
    |   |-- IllegalTransition     an event that the run's phase does not accept
    |   |-- Unrepairable          a history that no fix makes valid
    |   `-- NotSigned             a RunState with a missing or invalid signature
    |-- StoreFault                exit 1, status 503   the store cannot do it now
    |   |-- StoreUnavailable      it cannot be opened or reached
    |   |-- StoreReadOnly         it is read-only
    |   |-- StoreFull             no space is left
    |   `-- StoreTooNew           a newer convo made it
    |-- EndpointFault             exit 1               an error of an endpoint or model
    |   |-- RequestRefused        status as answered   a final error object: 400, 404, 422 ...
    |   |-- KeyRefused            status 401           no key, a wrong key, or a key without permission
    |   |-- TryLater              status as answered   429, 408, 409, 5xx, conversation_locked
    |   |-- Unreachable           status 502           no connection, or it failed before a response
    |   |-- StreamBroken          status 502           the response began and did not end
    |   |-- LimitReached          status 502           the response exceeds a limit of the settings
    |   `-- StateIgnored          status 502           the response came without the history it should have had
    |-- ModelFault                exit 1, status 400   a model that cannot do what was requested
    |   |-- ModelMissing          the weights or the engine are not installed
    |   |-- Unsupported           images, tools, ... that this model does not accept
    |   `-- WindowExceeded        the input does not fit the context window
    |-- RunFailed                 exit 1               a run of agents ended without an answer; `code` says why
    `-- Interrupted               exit 130             interrupted from the keyboard

A class gives `code` (for programs), `exit` (shell), `status` (HTTP) and `hint` (the fix). Adapters translate foreign
errors at their edge with `raise ... from`; cli and server read the four fields in one place each. A pause for approval
is a status of a run, not an error.
""",
}
LOCAL = {
    ("transfer.compact", "pathlib.Path"): "FilePath",
    ("transfer.import_", "pathlib.Path"): "FilePath",
    ("stores.base", "pathlib.Path"): "FilePath",
}
# No corrections to plan.py are needed for this part; see NOTES for three rows that are worth a decision.
MOVES: dict[str, list[str]] = {}

NOTES = """
DECISIONS THAT OTHER PARTS MUST KNOW
- WORDS.md wins over names.md: "confirmed/unconfirmed". mark -> confirmed_head, unacknowledged -> unconfirmed_nodes, on Session,
  ConversationState and ConversationView alike (names.md had `acked`; STYLE.md's example has it too). Document.acknowledged and
  Carried.confirmed -> confirmed_count. Columns and JSON keys stay "mark", "acknowledged".
- remembers -> is_server_side everywhere (StrategyInfo, ConversationState, TransferTarget, LintView). Not: desk/upcoming locals `remembers`.
- Link (the record) stays; saw -> input_head, sent -> sent_count, seconds -> duration_s, parent/session -> parent_id/session_id, stored ->
  is_stored. Link.head, Session.head, Path.head stay (git's term).
- Usage (errors) -> InvalidUsage, because click/typer has UsageError and usage.counting keeps Usage.
- Known -> ConversationView, Places -> PathIndex, Held -> ConversationState, Sent -> RequestInput, Wanted -> OwnerSelection, Document ->
  ConversationDocument, inspection Request -> SentRequest, View (lint) -> LintView, Count -> TokenCount, items Event -> StreamEvent,
  Path and Node stay, Partial -> ResponseAccumulator, Coming -> NextRequest, Filling -> ContextUsage, kind() -> item_type(),
  text() -> item_text(), user() -> user_message(), HERE -> EMBEDDED_SCOPE, OWNERS -> STRATEGY_INFO.
- Window (tokens) -> ModelWindow, because the config part has Room -> ContextWindow. Course.edges -> deps (engine.Edges -> ChatDeps in engine.py).
- Clock.ticks -> monotonic: Protocol, SystemClock and FixedClock here; no other class in convo/ or tests/ defines ticks.
- LOCAL: pathlib.Path is FilePath where a module also has our Path (transfer.compact, transfer.import_, stores.base).

STRATEGY CLASSES (step 4)
- The enum Strategy stays in history.records: it is the stored word. Classes cannot be called Session, Conversation or Chain without a second
  meaning (Session is the record): ReplayStrategy, SessionStrategy, ConversationStrategy, ChainStrategy, bases ClientStrategy (replay, session)
  and ServerStrategy (conversation, chain), one function strategy_of(Strategy). StrategyInfo's four fields become class attributes.
- Names were chosen so that the functions become methods with their first word kept:
  build_request_input -> .build_input(state); apply_response -> .apply_response; apply_cancellation -> base (same for all four);
  undo_last_answer, undo_last_turn, rewind_to_depth -> methods; items_for_owner -> .items_for_owner(items); replace_history -> .replace_history;
  decide_retry -> .decide_retry with RETRY_WHEN_OUTCOME_UNKNOWN as a class attribute; INPUT_BUILDERS disappears;
  owner_of_handle -> loop over classes with .handle_prefix; reconcile, items_after_confirmed -> ConversationStrategy and ChainStrategy only;
  CompactionMethod choice (_choose_method) -> .compaction_method(snapshot); transfer.convert.convert_conversation -> .store_copy().
- Against names.md (a starting point): confirm/interrupt are apply_response/apply_cancellation, not on_response/on_cancel, because they return
  a new state and react to nothing; carry/Carried are plan_transfer/TransferPlan, not check_compatibility/CompatibilityReport, because the
  result is the converted items, not only a report; mark is confirmed_head, not acked.

MERGE AND INLINE
- ANSWERED = ("completed", "incomplete") is defined seven times (inspection.strung, linting.view, transfer.compacting, transfer.racing,
  engine.owner_tail, engine.looking, stores.rules): one ANSWERED_STATUSES in history.records, beside LinkStatus. inspection.document.STATUSES
  (LINK_STATUSES) = get_args(LinkStatus). inspection.passages.WORDS = items.text.TEXT_FIELDS: delete the first. engine.finding.WORDS =
  strategies.handles.WORDS (ID_NAMES).
- SEAL, "convo1:" and "convoseal1:" stand three times (strategies.carrying, linting.seals, models.sealed): one place, history.items.
  For now SEAL_FIELD/PROVIDER_SEAL_PREFIX/CONVO_SEAL_PREFIX and, in lint, ENCRYPTED_FIELD/PROVIDER_SEAL/GATEWAY_SEAL. Likewise
  "compaction_trigger" (linting.compactions, embedded.inputs, transfer.compacting), DATED (two regexes that differ in one case: decide).
- compaction.cutting._pair/_string/_crossed repeat items.pairing.pair_id and output_index_by_call; _pair_id = pair_id restricted to types.
- linting.view.named is pairing.pair_id under another name: inline (counterpart_id until then). linting.owners.go_back and _owned_here,
  linting.lines._end, transfer.compacting._sent, tokens.counting._counted, items.partial._checksum, linting.view.own_here vs _owned_here:
  one-line hops to inline. linting.sarif._rule, transfer.reading._list, transfer.databases.READERS indirection likewise.
- inspection.walked._key = inspection.document.link_of.key = Path.nodes[...] or root: one method Path.key_at(depth).
- Places.depth/Path.place are one idea, therefore both are called depth. tokens.counting.at_most is an upper bound: max_token_count.
- inspection.forks.rows takes `head` = a link id, not a node key: parameter head_id when touched.
- handing._holds and branches._holds answer the same question for ReplayFile and a path: one function in chat.files.
- inspect/ holds `serialize` with two formats that never meet (inspect --json: shape; export: document) and `passages`: splitting it into
  inspect.serialize (shape) and transfer.document (document + passages) would follow its callers. runs/ and cli import document, so not now.

FILES THAT MOVE ALONG (move.py does not)
- convo/tokens/models.toml is found by Path(__file__).with_name: it must go to convo/usage/models.toml with usage.models.
- convo/inspection/linting/pages/*.md is read by cli.linting through PAGES = "convo.inspection.linting" (importlib.resources):
  it must go to convo/lint/pages, and the string is a package, which _rewrite_strings does not rewrite.
- ModelWindow(**row) and Price(**row): fields of these two classes are keys of models.toml (context, output, counted, source): not renamed.
- convo.errors is not in plan.py's MOVES; its docstring names the classes, so DOCS["errors"] has to be written by hand or a MOVES row
  "errors: errors" added. DOCS also has the seven package docstrings ("history", "usage", ...), which move.py does not read.

ATTRIBUTES NEED TYPES
- The same old name has several meanings, so a textual rename is unsafe: at, saw, sent, used, seconds, seen, said, words, where, by, open,
  places, path, handle, parent, session, link, stored, input, output, take, add, write, document, mark, before, after, items, why, what.
  Constructor keywords, dataclasses.replace(...) and NamedTuple._replace(...) use field names as keywords: rename them with the field.
- Not done, on purpose: locals and private parameters called held, made, wish, wrong, one, found. After the rename `held: ConversationState`
  reads badly; strategies/ has PARAMETERS for its public functions, the rest belongs to step 6. _whole and _delta keep `held`, because
  `state` is a local name there.
- PARAMETERS of constructors in errors (needed_tokens, process, ...): grep finds no call in convo/ or tests/ that names them by keyword.

CHECKED
- move.py with plan.py and NAMES, LOCAL, DOCS of this file alone, on a copy: no COLLISION, UNSAFE, ALIAS, SHADOW or IMPORT CLASH in the modules
  of this part; restricted to the rows of this part, every new module of it imports (models.toml copied along). cli and gateway could
  not be imported there (no typer, no starlette in the interpreter); no test was run.
- With the WHOLE plan, nothing that needs config imports: config.settings -> config.credentials -> config.schema -> config.settings, and
  config.settings -> config.model_lists -> config.settings. It is independent of names. The config part's MOVES (config.sections)
  changes it: see its notes.
- ATTRIBUTES and PARAMETERS were checked by check.py only (they exist, no clash inside the class), not carried out.

OPEN QUESTIONS
1. compaction.window (module): WORDS.md reserves "window" for the model's limit. compaction.context would be better; HOUSE.md/modules.txt
   decide modules, so it was left. inspect.context_window is about tokens of a request and is fine. Package `inspect` shadows nothing
   (absolute imports), but `from convo import inspect` beside stdlib inspect in one module needs an alias.
2. Scope.organisation: the API and the openai client spell organization. Left; it is an attribute only (stored positionally), so it is free.
3. Kept although not perfect: Busy, TryLater, Unreadable, StateFault, InputFault, StoreFault, EndpointFault, ModelFault. Refused -> RequestRefused, because a
   model's refusal is something else. Error codes are strings and stay ("unmendable", "illegal_move", "bad_state", "bad_settings").
4. Rule functions are check_CODE and fix_CODE after their rule codes (check_anchor_expired, fix_missing_summary): a stranger greps the code.
"""
