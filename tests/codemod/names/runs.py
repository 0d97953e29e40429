"""Final names of convo.run, convo.runstate, convo.agents, convo.tools and convo.handoffs."""

NAMES = {
    # ------------------------------------------------------------------ run -> runs
    "run.state": {
        "ENDED": "TERMINAL_PHASES",
        "OPEN": "PENDING_STAGES",
        "Call": "ToolCall",
        "Failure": "RunFailure",
        "Limits": "RunLimits",
        "Inner": "NestedRun",
        "begin": "create_run",
    },
    "run.events": {
        "Begin": "RunStarted",
        "Passed": "GuardrailPassed",
        "Tripped": "GuardrailTripped",
        "Answered": "ModelResponded",
        "Judged": "ApprovalEvaluated",
        "Returned": "ToolReturned",
        "PausedInside": "NestedRunPaused",
        "Broke": "EffectFailed",
        "Decided": "ApprovalDecided",
        "Given": "ToolOutputSupplied",
        "Said": "InputAdded",
        "Resume": "RunResumed",
        "HandedOver": "HandoffCompleted",
        "Stop": "CancelRequested",
        "Event": "RunEvent",
    },
    "run.effects": {
        "CheckInput": "CheckInputGuardrail",
        "CheckOutput": "CheckOutputGuardrail",
        "Ask": "CallModel",
        "Judge": "EvaluateApproval",
        "Start": "RunTool",
        "Append": "AppendToHistory",
        "HandOver": "PrepareHandoff",
        "Pause": "PauseRun",
        "Halt": "CancelTasks",
        "Finish": "FinishRun",
        "Fail": "FailRun",
        "Effect": "RunEffect",
    },
    "run.table": {
        "MOVES": "TRANSITIONS",
        "WORK": "EVENT_HANDLERS",
        "decide": "step_run",
        "_ASKED": "_AFTER_CALL_MODEL",
        "_CLOSED": "_AFTER_COMPLETE_CALLS",
        "_WORKED": "_AFTER_RUN_CALLS",
        "_TAKEN": "_AFTER_RESPONSE",
        "_PERFORMED": "_FALLIBLE_PHASES",
    },
    "run.moves": {
        "Move": "StepResult",
        "began": "_on_run_started",
        "passed": "_on_guardrail_passed",
        "tripped": "_on_guardrail_tripped",
        "answered": "_on_model_responded",
        "judged": "_on_approval_evaluated",
        "returned": "_on_tool_returned",
        "paused_inside": "_on_nested_run_paused",
        "broke": "_on_effect_failed",
        "decided": "_on_approval_decided",
        "given": "_on_tool_output_supplied",
        "said": "_on_input_added",
        "resumed": "_on_run_resumed",
        "handed_over": "_on_handoff_completed",
        "stopped": "_on_cancel_requested",
        "ask": "_request_model_call",
        "asking": "build_model_call",
        "work": "run_ready_calls",
        "close": "_complete_calls",
        "settle": "_accept_final_output",
        "fail": "_fail_run",
        "ended": "complete_call",
        "_taken": "_process_response",
        "_each": "_replace_calls",
        "_rejected": "_apply_sticky_rejection",
        "_after_judging": "_apply_approval_policy",
        "_verdict": "_apply_decision",
        "_around": "_find_enclosing_call",
        "_holds": "_contains_call",
        "_within": "_with_nested_run",
        "_may_go_on": "_can_resume",
        "_is_final": "_is_final_output",
        "_finished": "_finish_run",
        "_known": "_require_call",
        "_spoken": "_remove_guardrail",
    },
    "run.answers": {
        "HOSTED_REQUEST": "MCP_APPROVAL_REQUEST",
        "BEHAVIOR": "MODEL_BEHAVIOR",
        "OUTCOME_UNKNOWN": "OUTCOME_UNKNOWN_MESSAGE",
        "calls_of": "parse_tool_calls",
        "words_of": "extract_last_message_text",
        "used_in": "iter_used_tool_names",
        "output_item": "build_function_call_output",
        "turned_down": "build_rejection_output",
        "verdict_item": "build_mcp_approval_response",
        "cleared": "classify_call",
        "_call": "_parse_tool_call",
        "_stage": "_initial_stage",
        "_hosted": "_parse_mcp_request",
        "_name": "_qualified_tool_name",
        "_text": "_message_text",
    },
    "run.closing": {
        "NOT_RUN": "NOT_RUN_MESSAGE",
        "closing": "build_missing_outputs",
        "_named": "_answerable_id",
        "_output": "_build_missing_output",
    },
    "run.keeping": {
        "VERSION": "RUN_DOCUMENT_VERSION",
        "KNOWN": "KNOWN_DOCUMENT_VERSIONS",
        "STAGES": "STAGE_BY_WORD",
        "PHASES": "PHASE_BY_WORD",
        "CHANGED": "CHANGED_CODE_HINT",
        "kept": "run_to_json",
        "taken": "run_from_json",
        "_run": "_parse_run",
        "_limits": "_parse_limits",
        "_failure": "_parse_failure",
        "_check_known": "_check_member_names",
        "_call": "_call_to_json",
        "_inner": "_nested_run_to_json",
        "_called": "_parse_call",
        "_inside": "_parse_nested_run",
        "_lasting": "_sticky_decision_to_json",
        "_decided": "_parse_sticky_decision",
        "_tool": "_require_tool",
        "_find": "_find_tool",
        "_guard": "_guardrail_name",
        "_check_guards": "_check_guardrails",
        "_output": "_output_to_json",
        "_value": "_parse_output",
    },
    "run.recovering": {
        "caught_up": "apply_call_log",
        "at_rest": "pause_interrupted_run",
        "recover": "recover_run",
        "_calls": "_recover_calls",
        "_asking": "_repeat_model_call",
        "AGAIN": "REPEATABLE_EFFECTS",
    },
    "run.inbox": {
        "Document": "RunDocument",
        "OPEN": "PENDING_STAGE_WORDS",
        "WAITING": "PENDING_WORD",
        "UNKNOWN": "OUTCOME_UNKNOWN_WORD",
        "READY": "READY_WORD",
        "DONE": "DONE_WORD",
        "INSIDE": "NESTED_RUN_WORD",
        "PAUSED": "PAUSED_WORD",
        "Waiting": "PendingApproval",
        "waiting": "list_pending_approvals",
        "decidable": "list_decidable_approvals",
        "decided": "apply_decisions",
        "asked": "pending_approval_from_call",
        "named": "format_lookup",
        "_decidable": "_iter_decidable",
        "_told": "_apply_event",
        "_around": "_find_enclosing_call",
        "_waiting": "_parse_pending_approval",
        "_given": "_apply_supplied_output",
        "_decided": "_apply_decision",
        "_verdict": "_decide_call",
        "_others": "_other_sticky_decisions",
        "_lasting": "_build_sticky_decision",
        "_open": "_require_pending_call",
        "_with": "_replace_call",
        "_plain": "_to_tool_call",
    },
    # ------------------------------------------------------------------ runstate
    "runstate.account": {
        "VERDICT": "_MCP_APPROVAL_RESPONSE",
        "Turn": "ModelCall",
        "Account": "RunTranscript",
        "turns": "split_model_calls",
        "answers": "split_responses",
        "_next": "_agent_after_response",
    },
    "runstate.batch": {
        "VERDICT": "MCP_APPROVAL_RESPONSE",
        "FUNCTIONS": "FUNCTION_ACTIONS_PATH",
        "WORDS": "SCHEMA_ANNOTATIONS",
        "NAMED": "SCHEMA_MAPS",
        "SDK": "SDK_RESUME_HINT",
        "last_answer": "read_last_response",
        "named_by": "answerable_call_id",
        "outputs": "collect_outputs",
        "started": "collect_started_call_ids",
        "batch": "import_calls",
        "unfit": "find_agent_mismatch",
        "meaning": "strip_annotations",
        "inner": "find_open_nested_states",
        "_check_said": "_check_planned_calls",
        "_shown": "_iter_recorded_schemas",
        "_wrong": "_find_tool_mismatch",
        "_tool": "_find_tool",
        "_below": "_strip_member",
        "_asks": "_needs_answer",
        "_is_ours": "_is_client_call",
        "_inside": "_mark_nested",
        "_as_far": "_mark_stage",
    },
    "runstate.deciding": {
        "OVERRULES": "CALL_APPROVAL_WINS_SINCE",
        "ALL": "ALL_CALLS",
        "decided": "apply_verdict",
        "named": "select_pending_calls",
        "_inside": "_apply_in_document",
        "_bound": "_add_ledger_entries",
        "_entry": "_require_ledger_entry",
        "_check_words": "_check_verdict_supported",
    },
    "runstate.editing": {
        "EDITABLE": "EDITABLE_CALL_TYPES",
        "REPEATED": "CALL_COPY_PATTERNS",
        "edited": "edit_arguments",
        "_check_object": "_check_json_object",
        "_holders": "_iter_enclosing_states",
        "_repeats": "_iter_call_copies",
        "_bound_again": "_rebind_call",
    },
    "runstate.identity": {
        "Lookup": "LookupKey",
        "ARGUMENTS": "ARGUMENT_FIELDS",
        "MEANING": "FINGERPRINT_FIELDS",
        "HANDOFF": "HANDOFF_ROLE",
        "Binding": "CallBinding",
        "Call": "StateCall",
        "call_of": "parse_state_call",
        "layers": "make_lookup_key",
        "_scope": "_scope_digest",
        "_said": "_implied_lookup_key",
        "_lookup": "_parse_lookup_key",
        "_unwrapped": "_unwrap_hosted_call",
        "_text": "_non_empty_string",
        "_parsed": "_parse_arguments",
        "_refuse": "_reject_constant",
        "PARSER": "_STRICT_DECODER",
        "EXACT": "_CANONICAL_ENCODER",
        "_dense": "_drop_nulls",
        "_digest": "_hash_json",
    },
    "runstate.lasting": {
        "Always": "StickyDecisions",
        "for_good": "write_sticky_decisions",
        "always": "read_sticky_decisions",
        "_hosted": "_iter_hosted_tools",
        "_functions": "_iter_function_tools",
    },
    "runstate.making": {
        "STEPS": "EXPORTABLE_PHASES",
        "EMPTY": "EMPTY_LISTS",
        "PASSING": "LAST_RESPONSE_MEMBERS",
        "made": "export_run_state",
        "_check": "_check_exportable",
        "_said": "_write_decisions",
        "_verdict": "_verdict_from_call",
        "_document": "_build_document",
        "_inside": "_export_nested_run",
        "_since": "_model_calls_since_base",
        "_items": "_build_run_items",
        "_places": "_build_session_indexes",
        "_response": "_build_response",
        "_context": "_build_context",
        "_owner": "_build_owner",
    },
    "runstate.nested": {
        "INTERRUPTION": "INTERRUPTION_STEP",
        "CHILDREN": "NESTED_STATE_PATTERN",
        "WAITING": "INTERRUPTION_PATTERN",
        "ACTIONS": "ACTION_LISTS",
        "children": "iter_nested_states",
        "states": "iter_states",
        "interruptions": "iter_interruptions",
        "actions": "iter_actions",
        "unresolved": "iter_unresolved_calls",
        "_shown": "_action_tool_fields",
    },
    "runstate.paths": {
        "Step": "PathStep",
        "Steps": "PathSteps",
        "PLAIN": "PLAIN_KEY",
        "KEY_LENGTH": "MAX_KEY_LENGTH",
        "SHOWN": "MAX_PRINTED_STEPS",
        "Place": "PathMatch",
        "path": "format_path",
        "pattern": "parse_path_pattern",
        "found": "iter_path_matches",
        "at": "get_path",
        "replaced": "replace_path",
        "without": "remove_path",
        "_shown": "_format_step",
        "_quoted": "_quote_key",
        "_below": "_iter_matching_members",
    },
    "runstate.processed": {
        "UNPERFORMED": "UNSUPPORTED_ACTION_LISTS",
        "waits": "is_interruption",
        "step": "build_current_step",
        "waiting_inside": "iter_nested_interruptions",
        "processed": "build_processed_response",
        "_functions": "_build_function_actions",
    },
    "runstate.reading": {
        "LABEL": "SCHEMA_VERSION_KEY",
        "SNAKE": "PYTHON_MEMBERS",
        "CAMEL": "JAVASCRIPT_MEMBERS",
        "NESTING": "MAX_NESTED_STATES",
        "NEEDED": "REQUIRED_WHEN_PAUSED",
        "SMUGGLED": "DOWNGRADE_WARNING",
        "HISTORIES": "RUN_ITEM_LIST_PATHS",
        "LEDGER": "_LEDGER_PATH",
        "read": "parse_run_state",
        "is_state": "is_run_state",
        "of": "run_state_from_json",
        "_check_python": "_check_not_javascript",
        "_version": "_read_version",
        "_within_reason": "_iter_bounded_states",
        "_check_label": "_check_no_newer_members",
        "_waiting": "_iter_pending_calls",
        "_check_planned": "_check_planned_call",
        "_histories": "_iter_recorded_calls",
        "_said": "_call_signature",
        "_is_named": "_has_tool_name",
        "_binds": "_is_bound_to",
        "_check_decisions": "_check_decision_records",
    },
    "runstate.records": {
        "Record": "DecisionRecord",
        "Kept": "LocatedRecord",
        "Verdict": "ApprovalVerdict",
        "ids": "list_decided_call_ids",
        "for_good": "get_sticky_decision",
        "message": "get_rejection_message",
        "noted": "add_verdict",
        "merged": "merge_decision_records",
        "_for_good": "_add_sticky_verdict",
        "_worded": "_set_rejection_messages",
    },
    "runstate.relabel": {
        "PLAIN": "DEFAULT_VALUES",
        "relabelled": "relabel_state",
        "_borders": "_list_crossed_versions",
        "_over": "_cross_version",
        "_inside": "_cross_version_nested",
        "_taken_out": "_remove_version_keys",
        "_without": "_remove_matches",
        "_without_below": "_remove_matches_below",
        "_told": "_is_reportable",
        "_within": "_prefix_losses",
        "_labelled": "_set_label",
    },
    "runstate.run_items": {
        "APPROVAL": "APPROVAL_ITEM",
        "KINDS": "RUN_ITEM_TYPES",
        "CALLS": "TOOL_CALL_TYPES",
        "INPUT": "INPUT_RUN_ITEM",
        "OWN": "CONVO_IDENTITY_PREFIX",
        "Speaker": "GraphAgent",
        "answered": "build_response_items",
        "followed": "build_followup_items",
        "waiting": "build_approval_item",
        "action": "build_function_action",
        "request": "build_mcp_request",
        "lookup_key": "lookup_to_json",
        "bindings": "build_ledger",
        "bound": "build_sticky_call",
        "_item": "_build_run_item",
        "_called": "_build_tool_fields",
    },
    "runstate.sendable": {
        "check": "check_sendable",
        "_check_worked_on": "_check_open_calls",
        "_refuse": "_raise_fault",
        "_at": "_fault_location",
        "_items": "_list_items",
        "_answers": "_iter_response_items",
        "_staged": "_iter_pending_input",
    },
    "runstate.shape": {
        "COUNT_LIMIT": "MAX_COUNT",
        "DIGEST": "DIGEST_PATTERN",
        "WRITE_MORE": "OPTIONAL_WRITE_KEYS",
        "STEPS": "STEP_TYPES",
        "AGENTS": "AGENT_MEMBERS",
        "Rule": "ShapeRule",
        "RULES": "SHAPE_RULES",
        "COMPILED": "COMPILED_SHAPE_RULES",
        "LISTS": "RUN_ITEM_LIST_PATTERNS",
        "CALLS": "CALL_PATTERNS",
        "WORDS": "CALL_STRING_FIELDS",
        "check": "check_shape",
        "_is": "_is_type",
        "_count": "_is_count",
        "_agent": "_is_agent",
        "_objects": "_is_object_list",
        "_input": "_is_input",
        "_decided": "_is_decision",
        "_record": "_is_decision_record",
        "_actions": "_is_action_list",
        "_hosted": "_is_hosted_record",
        "_owned": "_is_function_record",
        "_bound": "_is_ledger_entry",
        "_write": "_is_session_write",
        "_said": "_describe_value",
        "_without_an_item": "_iter_invalid_run_items",
        "_wrong_in": "_find_run_item_fault",
        "_called_oddly": "_iter_invalid_calls",
        "_no_string": "_find_non_string_field",
        "_check_boundary": "_check_guardrail_result_start",
    },
    "runstate.signing": {
        "MEMBER": "SIGNATURE_KEY",
        "ALGORITHM": "SIGNATURE_ALGORITHM",
        "PURPOSE": "SIGNATURE_PREFIX",
        "SHORTEST": "MIN_KEY_BYTES",
        "signed": "sign_state",
        "unsigned": "remove_signature",
        "verify": "verify_signature",
        "_mac": "_compute_mac",
    },
    "runstate.state": {
        "USAGE": "USAGE_FIELDS",
        "Pending": "PendingCall",
        "Decision": "StateDecision",
        "State": "RunState",
        "view": "wrap_document",
    },
    "runstate.summary": {
        "summary": "run_state_summary_to_json",
        "pending": "state_call_to_json",
        "_decision": "_decision_to_json",
    },
    "runstate.taking": {
        "Taken": "ImportedRun",
        "taken": "import_run_state",
        "_run": "_import_run",
        "_inside": "_import_nested_run",
        "_check_sendable": "_check_paused_sendable",
        "_within": "_prefix_error",
        "_paused": "_import_paused_run",
        "_of_nobody": "_unplanned_call_error",
        "_between": "_import_unpaused_run",
        "_output": "_parse_final_output",
        "_history": "_import_history",
        "_owner": "_read_owner",
        "_responses": "_iter_response_ids",
        "_tracked": "_iter_used_tools",
    },
    "runstate.text": {
        "BYTES": "MAX_STATE_BYTES",
        "PLACES": "MAX_MEMBERS",
        "LEVELS": "MAX_DEPTH",
        "SCANNED": "MAX_SCANNED_CHARS",
        "WINDOW": "SCAN_CHUNK_BYTES",
        "NO_COUNT": "UNCOUNTED_BYTES",
        "MARKS": "BYTE_ORDER_MARKS",
        "TOKEN": "TOKEN_PATTERN",
        "NO_NUMBER": "NON_FINITE_PATTERN",
        "parse": "parse_document",
        "kind": "describe_json_type",
        "Found": "JsonToken",
        "place": "locate_offset",
        "_decoded": "_decode_utf8",
        "_is_crowded": "_has_too_many_members",
        "_outside": "_count_member_marks",
        "_loaded": "_load_json",
        "_Odd": "_InvalidValue",
        "_Twice": "_DuplicateKey",
        "_once": "_make_object",
        "_no_number": "_reject_constant",
        "_finite": "_parse_float",
        "_odd": "_invalid_value_error",
        "_depth": "_measure_depth",
        "_tokens": "_iter_tokens",
        "_key": "_parse_key",
        "_known": "_known_steps",
        "_too_deep": "_too_deep_error",
        "_first": "_locate_token",
        "_too_long": "_is_too_long_number",
        "_twice": "_iter_duplicate_keys",
    },
    "runstate.told": {
        "APPROVAL": "_APPROVAL_ITEM",
        "GENERATED": "GENERATED_ITEMS",
        "places": "iter_history",
        "acknowledged": "count_confirmed_items",
        "is_answer": "is_call_answer",
        "_name": "_item_id",
    },
    "runstate.totals": {
        "TOKENS": "TOKEN_FIELDS",
        "DETAILS": "TOKEN_DETAILS",
        "Said": "UsageJson",
        "response": "build_model_response",
        "usage": "total_usage",
        "_counted": "_count_usage",
        "_details": "_sum_details",
        "_entry": "_build_usage_entry",
        "_added": "_add_usage",
    },
    "runstate.values": {
        "NONE": "NONE_META",
        "MAPPING": "MAPPING_META",
        "context": "build_context_members",
        "values_of": "read_context_values",
        "described": "read_context_description",
        "_check": "_check_context_value",
    },
    "runstate.version": {
        "ITEM_LISTS": "RUN_ITEM_PATTERNS",
        "Loss": "RelabelLoss",
        "Change": "RelabelResult",
        "Move": "RelabelStep",
        "Slot": "RecordSlot",
        "Room": "RecordSlots",
        "as_it_is": "return_unchanged",
        "none_of": "find_no_values",
        "no_records": "find_no_records",
        "no_room": "find_no_slots",
        "on_items": "expand_item_keys",
        "lost": "make_loss",
        "says": "has_content",
        "_short": "_format_lost_value",
    },
    "runstate.versions": {
        "NEWEST": "NEWEST_VERSION",
        "BY_LABEL": "VERSION_BY_LABEL",
        "BOUND": "LEDGER_SINCE",
        "WORDED": "REJECTION_MESSAGE_SINCE",
        "NESTED": "NESTED_STATE_SINCE",
        "LIMITLESS": "UNLIMITED_TURNS_SINCE",
        "upto": "list_versions_up_to",
        "after": "list_versions_after",
        "room": "find_record_slots",
    },
    "runstate.versions.v1_0": {"APPROVALS": "APPROVALS_PATH", "_records": "_find_records", "_room": "_find_slots"},
    "runstate.versions.v1_10": {
        "UNLIMITED": "UNLIMITED_SUBSTITUTE",
        "_limitless": "_find_unlimited",
        "_limited": "_to_older",
    },
    "runstate.versions.v1_13": {
        "RAW": "RAW_ITEM_PATTERNS",
        "_programs": "_find_program_items",
        "_of_a_program": "_is_program_item",
    },
    "runstate.versions.v1_15": {
        "LEDGER": "LEDGER_PATH",
        "HOSTED": "HOSTED_APPROVALS_PATH",
        "AGAIN": "RUN_AGAIN_STEP",
        "INPUT": "_INPUT_RUN_ITEM",
        "entry": "build_ledger_entry",
        "_hosted": "_find_hosted_records",
        "_named": "_hosted_tool_key",
        "_room": "_find_slots",
        "_listed": "_ensure_record",
        "_again": "_find_run_again_step",
        "_older": "_to_older",
        "_as_begun": "_move_input_items",
        "_by_name": "_merge_into_approvals",
        "_newer": "_from_older",
        "_entry": "_build_pending_entry",
        "_waiting": "_iter_pending_calls",
        "_handed_down": "_move_nested_decisions",
        "_bound": "_bind_records",
        "_by_tool": "_find_approval_records",
        "_tied": "_bind_sticky_record",
        "_moved": "_move_hosted_record",
    },
    "runstate.versions.v1_18": {
        "OWNED": "FUNCTION_APPROVALS_PATH",
        "_records": "_find_records",
        "_room": "_find_slots",
        "_listed": "_ensure_record",
        "_older": "_to_older",
        "_newer": "_from_older",
        "_owned": "_move_to_agent",
        "_name": "_agent_name",
    },
    "runstate.versions.v1_21": {"WRITE": "SESSION_WRITE_PATH", "_older": "_to_older"},
    "runstate.whose": {
        "ITEMS": "OWN_RUN_ITEM_PATTERNS",
        "AGENTS": "AGENT_REFERENCE_KEYS",
        "OWNED": "FUNCTION_APPROVAL_PATTERN",
        "identity_in": "get_agent_identity",
        "identities": "resolve_agent_identities",
        "_references": "_iter_agent_references",
        "_called": "_find_agents_by_name",
        "_by_handoffs": "_resolve_by_handoffs",
        "_only": "_require_single_agent",
    },
    "runstate.writing": {
        "ENCODER": "STATE_ENCODER",
        "OPENED": "EXPANDED_LEVELS",
        "text": "serialize_run_state",
        "_opened": "_serialize_value",
    },
    # ------------------------------------------------------------------ agents (exports are frozen)
    "agents.agent": {
        "Check": "GuardrailCheck",
        "Enabled": "EnabledRule",
        "CALLED": "TOOL_NAME_PATTERN",
        "AFTER": "AfterToolsMode",
        "ONE": "AGENT_FIELDS",
        "SEVERAL": "AGENT_LIST_FIELDS",
        "OF_A_HANDOFF": "HANDOFF_FIELDS",
        "names_of": "collect_tool_names",
        "_check": "_check_type",
        "_stops": "_check_stop_tools",
        "_offered": "_check_tool",
        "_callable_by": "_check_tool_name",
        "_kind": "_type_name",
    },
    "agents.output": {
        "WRAPPED": "WRAPPER_KEY",
        "_plain": "_json_default",
        "_json": "_parse_json",
        "_unwrapped": "_parse_wrapped_json",
    },
    "agents.graph": {
        "Roll": "AgentRegistry",
        "identities_of": "assign_identities",
        "_by_reference": "_collect_agents",
        "_targets": "_list_handoff_targets",
        "_meant": "_find_agent_by_name",
    },
    "agents.foreign": {
        "HANDOFF_SHAPE": "HANDOFF_ATTRIBUTES",
        "FUNCTIONS": "FUNCTION_TOOL_TYPES",
        "NOT_STRICT": "NOT_STRICT_HINT",
        "_is_agent": "_is_sdk_agent",
        "_check_class": "_check_agent_class",
        "_graph": "_convert_graph",
        "_reached": "_list_reachable_agents",
        "_target": "_resolve_handoff_target",
        "_agent": "_convert_agent",
        "_instructions": "_convert_instructions",
        "_model": "_read_model_name",
        "_after_tools": "_convert_after_tools",
        "_output": "_convert_output",
        "_translated": "_wrap_output_parser",
        "_kind": "_check_tool_class",
        "_function": "_convert_function_tool",
        "_agent_tool": "_convert_agent_tool",
        "_sent": "_convert_request_tools",
        "_named": "_supported_arguments",
        "_json": "_to_json",
        "_handoff": "_convert_handoff",
        "_approval": "_convert_approval",
        "_invoke": "_wrap_tool_function",
        "_enabled": "_convert_enabled",
        "_serialize": "_serialize_tool_output",
        "_input_guardrail": "_convert_input_guardrail",
        "_output_guardrail": "_convert_output_guardrail",
        "_later": "_await_tripwire_reason",
        "_reason": "_tripwire_reason",
    },
    "agents.foreign_behind": {
        "CLOSED_OVER": "AGENT_TOOL_SETTINGS",
        "MAX_TURNS": "DEFAULT_MAX_TURNS",
        "WORDS": "DEFAULT_ERROR_FUNCTION",
        "HINT": "_UNSUPPORTED_HINT",
        "Behind": "AgentToolSettings",
        "behind": "read_agent_tool_settings",
        "_closed_over": "_read_closure_variables",
    },
    "agents.foreign_context": {
        "TOKENS": "SDK_TOKEN_FIELDS",
        "DETAILS": "SDK_TOKEN_DETAILS",
        "run_context": "make_run_context",
        "tool_context": "make_tool_context",
        "guardrail_input": "to_guardrail_input",
        "refusal_of": "get_refusal",
        "easy_form": "to_easy_input_message",
        "_made": "_make_context",
        "_of_run": "_run_context_fields",
        "_usage": "_make_usage",
        "_details": "_read_token_details",
    },
    "agents.foreign_fields": {
        "PACKAGE": "SDK_PACKAGE",
        "HINT": "UNSUPPORTED_HINT",
        "Fields": "FieldSupport",
        "AGENT": "SDK_AGENT_FIELDS",
        "HANDOFF": "SDK_HANDOFF_FIELDS",
        "INPUT_GUARDRAIL": "SDK_INPUT_GUARDRAIL_FIELDS",
        "OUTPUT_GUARDRAIL": "SDK_OUTPUT_GUARDRAIL_FIELDS",
        "CALLERS": "OTHER_CALLERS",
        "TOOLS": "SDK_TOOL_FIELDS",
        "NOT_PERFORMED": "UNSUPPORTED_TOOLS",
        "sdk_classes": "iter_sdk_classes",
        "sdk_class": "find_sdk_class",
        "check_fields": "check_sdk_fields",
    },
    "agents.foreign_filter": {"TYPES": "FILTER_TYPE_NAMES", "_as_given": "_restore_item"},
    "agents.foreign_settings": {
        "SAME": "SHARED_SETTINGS",
        "FIELDS": "REQUEST_FIELDS",
        "LEFT": "IGNORED_SETTINGS",
        "REFUSED": "UNSUPPORTED_SETTINGS",
        "LOGPROBS": "LOGPROBS_INCLUDE",
        "MADE": "SETTING_CONVERTERS",
        "settings_of": "convert_model_settings",
        "defaults_of": "convert_default_settings",
        "_reasoning": "_convert_reasoning",
        "_merge": "_merge_fields",
    },
    "agents.tables": {
        "Load": "ReferenceLoader",
        "Kinds": "ValueTypes",
        "AGENT": "AGENT_TABLE_KEYS",
        "HANDOFF": "HANDOFF_TABLE_KEYS",
        "_agent": "_parse_agent",
        "_after": "_parse_after_tools",
        "_tool": "_parse_tool",
        "_hosted": "_parse_hosted_tool",
        "_handoff": "_parse_handoff",
        "_output": "_parse_output",
        "_guardrails": "_parse_guardrails",
        "_guardrail": "_parse_guardrail",
        "_called": "_load_function",
        "_loaded": "_load_reference",
        "_known": "_check_keys",
        "_kinds": "_format_types",
    },
    # ------------------------------------------------------------------ handoffs -> agents
    "handoffs.nesting": {
        "Mapper": "HistoryMapper",
        "ONLY_TEXT": "TEXT_ONLY_TYPES",
        "PROGRAM": "PROGRAM_TYPES",
        "APPROVAL": "APPROVAL_ITEM_TYPE",
        "Transcript": "HandoffTranscript",
        "passed_on": "build_handoff_input",
        "nested": "nest_handoff_history",
        "_ordered": "_interleave_summaries",
        "_plain": "_to_input_item",
        "_before_stays": "_is_verbatim_before_turn",
        "_new_stays": "_is_verbatim_in_turn",
        "_is_program": "_is_program_item",
    },
    "handoffs.summary": {
        "Markers": "HistoryMarkers",
        "MARKERS": "DEFAULT_HISTORY_MARKERS",
        "PREAMBLE": "SUMMARY_PREAMBLE",
        "PREAMBLES": "KNOWN_SUMMARY_PREAMBLES",
        "EMPTY": "EMPTY_SUMMARY",
        "ROLES": "MESSAGE_ROLES",
        "NOT_SAID": "PRIVATE_FIELDS",
        "summarise": "summarize_transcript",
        "unfold": "expand_summaries",
        "cleaned": "remove_private_fields",
        "_record": "_format_record",
        "_one_line": "_is_one_line",
        "_body": "_find_summary_body",
        "_parsed": "_parse_summary_body",
        "_records": "_split_records",
        "_number": "_record_number_end",
        "_item": "_parse_record",
        "_object": "_parse_object",
        "_is_role": "_is_role_only",
        "_plain": "_role_without_name",
        "_named": "_split_role",
        "_message": "_make_message",
    },
    "handoffs.offering": {
        "IGNORED": "IGNORED_HANDOFF_OUTPUT",
        "NOTHING": "EMPTY_PARAMETERS",
        "Offer": "HandoffTool",
        "tool_name": "make_handoff_tool_name",
        "transferred": "format_handoff_output",
        "offers": "build_handoff_tools",
        "_offer": "_build_handoff_tool",
    },
    "handoffs.planning": {
        "Habits": "HandoffDefaults",
        "Plan": "HandoffPlan",
        "plan": "plan_handoff",
    },
    # ------------------------------------------------------------------ tools (exports are frozen)
    "tools.arguments": {
        "PARSER": "ARGUMENT_DECODER",
        "_wrong": "_invalid_arguments",
        "_mistake": "_describe_mistake",
        "_refuse": "_reject_json_constant",
    },
    "tools.doc": {
        "SPHINX": "SPHINX_PARAM",
        "SPHINX_OTHER": "SPHINX_FIELD",
        "HEADING": "FIELDS_HEADING",
        "GOOGLE": "GOOGLE_FIELD",
        "NUMPY": "NUMPY_FIELD",
        "_made_up": "_is_generated_docstring",
        "_ends_the_words": "_ends_description",
        "_fields": "_parse_field_descriptions",
        "_kind_of": "_heading_style",
        "_begins": "_parse_field_start",
    },
    "tools.forms": {
        "Schema": "JsonSchema",
        "Reader": "ValueReader",
        "PLAIN": "SCALAR_FORMS",
        "KINDS": "JSON_TYPE_NAMES",
        "ARRAYS": "ARRAY_TYPES",
        "_leaf": "_make_scalar_form",
        "_same": "_return_value",
        "_whole": "_is_whole_number",
        "_choice": "_make_choice_form",
        "_enumerated": "_make_enum_form",
        "_element": "_element_type",
        "_array": "_make_array_form",
        "_either": "_make_union_form",
        "_record": "_make_record_form",
        "_defaults": "_default_factories",
        "_open": "_make_open_form",
        "_at": "_join_place",
        "_wanted": "_mismatch_message",
        "_name": "_format_type",
        "_cannot": "_unsupported_reason",
        "_instead": "_unsupported_hint",
    },
    "tools.naming": {
        "_meant": "_lookup_of_call",
        "_join": "_add_to_namespace",
        "_function": "_build_function_definition",
    },
    "tools.outcomes": {"PARTS": "CONTENT_PART_TYPES"},
    "tools.tool": {"_made": "_make_tool", "_field": "_make_parameter_field", "_constant": "_make_default_factory"},
}

ATTRIBUTES = {
    "run.state": {
        "Phase.GUARDING": "CHECKING_INPUT",
        "Phase.ASKING": "CALLING_MODEL",
        "Phase.CLEARING": "CHECKING_APPROVALS",
        "Phase.WORKING": "RUNNING_TOOLS",
        "Phase.HANDING": "HANDING_OFF",
        "Phase.CHECKING": "CHECKING_OUTPUT",
        "Phase.STOPPED": "CANCELLED",
        "Stage.JUDGING": "CHECKING_APPROVAL",
        "Stage.WAITING": "PENDING",
        "Stage.STARTED": "RUNNING",
        "Stage.UNKNOWN": "OUTCOME_UNKNOWN",
        "Stage.INSIDE": "NESTED_RUN_PAUSED",
        "Call.to": "target",
        "Call.ran": "has_run",
        "Call.inner": "nested_run",
        "Call.verdict": "approved",
        "Limits.parallel": "max_parallel_calls",
        "Run.batch": "calls",
        "Run.guards": "open_guardrails",
        "Run.answered": "has_response",
        "Run.used": "used_tools",
        "Run.always": "sticky_decisions",
        "Run.reasons": "sticky_rejection_messages",
        "Run.staged": "staged_items",
        "Run.current": "current_agent",
        "Run.waiting": "pending_with_agents",
        "Run.decidable": "decidable_with_agents",
        "Run.at": "calls_at",
        "Run.call": "find_call",
        "Run.put": "replace_call",
    },
    "run.events": {
        "Passed.place": "guardrail_index",
        "Tripped.place": "guardrail_index",
        "Judged.needed": "needs_approval",
        "PausedInside.inner": "nested_run",
    },
    "run.effects": {
        "CheckInput.place": "guardrail_index",
        "CheckOutput.place": "guardrail_index",
        "Ask.free": "omit_tool_choice",
    },
    "run.inbox": {
        "Waiting.unknown": "outcome_unknown",
        "Waiting.hosted": "is_hosted",
        "Waiting.verdict": "approved",
    },
    "runstate.account": {
        "Turn.after": "added_items",
        "Account.before": "input_items",
        "Account.turns": "model_calls",
        "Account.summed": "summarized_calls",
        "Account.values": "context_values",
        "Account.own": "convo_only",
        "Account.unknown": "allow_unknown_outcomes",
    },
    "runstate.identity": {
        "Call.space": "namespace",
        "Call.alias": "has_bare_name_alias",
        "Call.tool": "tool_name",
        "Call.keys": "record_keys",
        "Call.kept_under": "record_keys_for",
        "Call._key": "_own_record_key",
        "Call.scope": "scope_digest",
    },
    "runstate.records": {
        "Kept.hosted": "is_hosted",
        "Kept.echo": "is_duplicate",
    },
    "runstate.run_items": {
        "Speaker.ways": "handoff_targets",
        "Speaker.tool": "find_tool",
    },
    "runstate.shape": {
        "Rule.where": "path_pattern",
        "Rule.words": "expectation",
        "Rule.fits": "is_valid",
        "Rule.needed": "is_required",
    },
    "runstate.state": {
        "Pending.way": "item_path",
        "Pending.holder": "state_path",
        "Decision.bound": "is_bound",
        "State.undecided": "list_undecided",
        "State._decided": "_iter_decisions",
        "State._for_good": "_iter_sticky_decisions",
    },
    "runstate.taking": {
        "Taken.acknowledged": "confirmed_count",
        "Taken.responses": "response_ids",
        "Taken.values": "context_values",
        "Taken.source": "source_hash",
    },
    "runstate.text": {
        "Found.at": "offset",
        "Found.mark": "text",
        "Found.way": "steps",
    },
    "runstate.version": {
        "Slot.for_good": "can_be_sticky",
        "Version.values": "find_values",
        "Version.older": "to_older",
        "Version.newer": "from_older",
        "Version.reads": "find_records",
        "Version.room": "find_slots",
        "Version.own": "iter_own_members",
    },
    "agents.graph": {"Roll.named": "by_name", "Roll._places": "_indexes", "Roll.place": "index_of"},
    "agents.foreign_behind": {"Behind.worded": "reports_failures"},
    "handoffs.offering": {"Offer.way": "handoff", "Offer.to": "target"},
    "tools.forms": {
        "Record._value": "_read_field",
        "Record._property": "_build_property",
        "Record._names": "_field_names",
    },
}

PARAMETERS = {
    "run.moves": {
        "fail.halt": "cancel_tasks",
        "_each.calls": "changed_calls",
        "_spoken.place": "guardrail_index",
        "_within.inner": "nested_run",
        "settle.before": "earlier_effects",
        "ask.before": "earlier_effects",
    },
    "run.closing": {"closing.said": "items"},
    "run.recovering": {"caught_up.started": "started_call_ids"},
    "runstate.deciding": {"named.words": "selector"},
    "runstate.editing": {"edited.one": "pending_call"},
    "runstate.identity": {"layers.space": "namespace", "call_of.shown": "run_item"},
    "runstate.paths": {"found.way": "prefix", "pattern.words": "text"},
    "runstate.nested": {"states.way": "prefix"},
    "runstate.processed": {"processed.asked": "approval_items", "processed.inside": "nested_states"},
    "runstate.totals": {"response.said": "usage_json", "usage.before": "base_usage"},
    "runstate.whose": {"identities.fits": "can_be_current"},
    "runstate.run_items": {"bindings.done": "completed_call_ids"},
    "handoffs.offering": {"offers.off": "disabled"},
    "handoffs.planning": {
        "plan.way": "handoff",
        "plan.habits": "defaults",
        "plan.remembers": "is_server_history",
        "plan.names": "agent_names",
    },
}

DOCS = {
    "runs.state": """State, events and effects of an agent run, as frozen values.

`Run` is the state of the machine: its phase, whose turn it is, and the tool calls of the last response.
An event is the result of an effect or an action of a person. An effect is work that the run asks for; the
agent runner performs it and reports the result as an event. The conversation is not stored here: its owner has it.
""",
    "runs.machine": """The state machine of an agent run: `step_run` applies an event and returns the effects to perform.

`TRANSITIONS` lists which event is allowed in which phase and the phases it can lead to; anything else raises
IllegalMove and changes nothing. All functions are pure. Outputs are appended in the order of their calls,
all at once, after the last call of a response completed. A call of a tool that was not offered fails the run.
""",
    "runs.serialize": """Serialize a run as JSON, parse it again, and recover it in another process.

Agents are stored by identity, tools by lookup and a fingerprint of their schema; the caller provides the graph.
BadState is raised if a tool, guardrail or output schema changed since: an approval was given for the old one.
Model calls and guardrails are repeated after a crash. A tool call that started and has no output is never
repeated: its outcome is unknown, and a person decides. Stored words never change.
""",
    "runs.approvals": """List and decide the pending approvals of a stored run without loading its agents.

Reads and changes the JSON document of `runs.serialize` only, so it works on a machine that does not have the
agents' code. Whether edited arguments fit the tool's schema is checked when the run is resumed.
""",
    "runstate.document": """Parse a JSON document strictly, and read, match and replace values by path.

Invalid UTF-8, duplicate keys, NaN, infinite numbers, excessive size and excessive depth raise BadState with a JSON
path. A pattern such as `model_responses[].request_id` matches every element with `[]` and every key with `*`.
Documents are never changed in place: `replace_path` and `remove_path` return a copy that shares the rest.
""",
    "runstate.identity": """Identify the tool call that a decision is about: record keys, scope digest and fingerprint.

From label 1.15 on a decision counts only if the ledger binds the call's id to two SHA-256 digests: the scope
(the tool) and the fingerprint (the tool and its arguments). Readers recompute both, so they must match to the byte:
sorted JSON without spaces, not ASCII-escaped, UTF-8.
""",
    "runstate.format": """The format of a RunState document: nested states, decision records, and the versions (labels).

A decision record holds the approved and rejected calls of one tool by id, or `true` for a sticky decision; labels
differ in where it is stored. A `Version` describes one label: its keys, and how a document moves to and from the
label before it. The versions themselves are in `runstate.versions`.
""",
    "runstate.state": """A parsed RunState of the Agents SDK: its document, pending calls and decisions.

`RunState.document` is kept exactly as it was read; `RunState` is a view of it that knows the label. Pending calls of
agents used as tools are included. Use `runstate.reader` to read an untrusted document.
""",
    "runstate.reader": """Parse and validate a RunState, or raise BadState with the place of the first error.

A state decides which tools run, so it is not trusted: its label must be one that a release wrote, no key may be newer
than the label, what is shown for approval must be what would run, and decisions from 1.15 on need their
ledger entry. Nothing is repaired. `run_state_summary_to_json` is the output of `convo inspect STATE.json --json`.
""",
    "runstate.approvals": """Approve, reject and edit the pending calls of a RunState document.

A decision is written where readers of the document's own label look for it. Edited arguments replace every copy of
the call and its ledger entry. A decision that the label cannot express raises Usage before anything changes.
""",
    "runstate.relabel": """Convert a RunState to another label and report what is lost.

A release reads its own label and older ones. The document crosses one version after the other; keys that the target
does not know are removed and returned as RelabelLoss. The label is changed last, also in nested states.
""",
    "runstate.writer": """Serialize a RunState as JSON text; sign it and verify a signature.

One line for each member of the document and of its context and each element of its lists, so files can be diffed.
The signature is HMAC-SHA256 over the canonical JSON without the member `$convoSignature`; spacing and the order of
keys do not matter. A key has at least 16 bytes.
""",
    "runstate.run_items": """Run items of a RunState: made from conversation items, for an agent of the graph.

`GraphAgent` builds run items and references. The context values of the user are written and read here too.
""",
    "runstate.calls": """Tool calls of the last response of a RunState, with their stages, as a run works on them.""",
    "runstate.agents": """Agents of a RunState and of the graph, and the sticky decisions stored for each.

`resolve_agent_identities` maps the agents of a document to the graph by handoffs and tools, because the
SDK's numbers of agents with one name cannot be recomputed.
""",
    "runstate.import_": """Import a RunState as a run of convo, with its history and its owner.

Outputs of calls that are complete while others are pending are not part of the history yet; they are sent together.
Raises if the graph lacks an agent or a tool, or if a tool's schema is not the one in the state.
""",
    "runstate.preflight": """Check, before any tool runs, that a server will accept the next request of an imported run.

Applies the lint rules for malformed items and for calls without outputs to the history that would be sent. Imports
the linter, so it is imported only when a state is resumed.
""",
    "runstate.export": """Export a run of convo as a RunState of the newest label, for the Agents SDK to resume.

Combines the run with its transcript (history, model calls, owner) and validates the result like any other state.
If the run was imported, `base_state` is the state it came from, and members that convo does not model are kept.
""",
    "agents.agent": """`Agent`, `Handoff`, `Guardrail` and `Output`: the definition of an agent, as values.

Nothing here runs: functions of the user (instructions, guardrails, filters) are stored, and the agent runner calls
them. Invalid definitions raise InputFault at construction. An output type that is not an object is wrapped in an
object with the key `response`, because a strict schema needs an object at its root.
""",
    "agents.graph": """The agents that a run can reach, by identity, and agents used as tools.

Agents that share a name get the identities `Name`, `Name#2`, ... in the order of their handoffs, nearest first (the
Agents SDK numbers them differently). An `AgentTool` runs a graph of its own inside one tool call.
""",
    "agents.handoffs": """Handoff tools, and what applies at a handoff: an input filter, a nested history, or nothing.

A handoff is a function tool, `transfer_to_` and the agent's name; its output names the next agent as JSON. If the
server owns the history, a filter raises WrongOwner and nesting is skipped with a warning.
""",
    "agents.handoff_history": """The history that the next agent receives: filtered, or nested as a summary in one message.

The text between `<CONVERSATION HISTORY>` markers is identical to the Agents SDK's. Summaries found in the history
are expanded first, so nothing is summarized twice. Only assistant messages are taken for summaries. Messages
of the last turn stay as they are; its calls, outputs and reasoning become text. The conversation is not changed.
""",
    "agents.sdk": """Convert agents of an installed Agents SDK (openai-agents) to agents of convo.

The SDK is imported only when one of its objects is given. Its functions keep their signature and receive the
SDK's own context classes. Every public field of its classes is listed as honoured or unsupported; an unsupported or
unknown field with a value other than its default raises Unsupported.
""",
    "agents.toml": """Parse agents written in TOML, one table `[agents.NAME]` each, with references `file.py:name`.

Unknown keys and values of a wrong type raise BadSettings with their place. The caller loads the references.

    start = "triage"

    [agents.triage]
    handoffs = ["billing", {to = "returns", tool_name = "to_returns"}]
    tools = ["desk.py:refund", {type = "web_search"}]
""",
    "tools.schema": """JSON schemas of Python types, readers of their values, and descriptions from docstrings.

A `Form` has both halves, so what the model is shown and what is accepted cannot differ. A strict schema lists every
field and allows no other; a type it cannot express raises InputFault when the tool is defined.
Docstrings may use Google, Sphinx or NumPy style, or plain `name:  description` lines.
""",
    "tools.tool": """`Tool` and the `@tool` decorator, tool lookup, argument parsing, and the text of tool outcomes.

Name, description and parameters come from the function; the model does not see a first parameter of type `Context`.
A tool is identified by its lookup (bare, namespaced or deferred). Invalid arguments are returned as `Wrong`, text for
the model, not raised. Nothing here runs a tool: the agent runner does.
""",
    "runs": "The state machine of an agent run: read `state` for its values and `machine` for `step_run`.",
    "runstate": "RunState documents of the Agents SDK: read `reader` for what is accepted, `state` for the parsed view.",
}
"""The last two are packages: move.py takes docstrings of modules only, so put these two in by hand."""

MOVES = {
    # With nested, records and version in it, runstate.state and the package runstate.versions import each other at
    # import time (tried on a copy: ImportError, partially initialized module). So state is above versions, format below.
    "runstate.state": ["runstate.state"],
    "runstate.format": ["runstate.nested", "runstate.records", "runstate.version"],
    # sendable imports the linter; taking imports it inside a function on purpose ("loaded for a state that is gone
    # on with, and for no other"). In one module the linter loads with every import of runstate.import_.
    "runstate.import_": ["runstate.taking", "runstate.told"],
    "runstate.preflight": ["runstate.sendable"],
}

NOTES = """
FROZEN, AND BAD. The exports of convo.tools and convo.agents stay by the brief, so check.py reports Form, form, made_by and told as
public twice until the OTHER definition is renamed: ui.markdown.tables.Form and form, cli.export.Form, cli.loading.made_by,
cli.running.told. (Record, Told, Wrong and output were reported too; other parts have renamed theirs since.)
The README documents only convo.agents.Agent and convo.tools.tool (HOUSE.md, Frozen surface),
so a person may decide to rename the others: Told -> Docstring, told -> parse_docstring, Wrong -> InvalidArguments, made_by ->
call_or_mismatch, timed_out -> format_timeout, lookup_of -> tool_lookup, definitions -> build_tool_definitions, Form -> TypeForm,
form -> build_form, Record -> ObjectForm, toolbox -> build_toolbox, output -> make_output, graph -> build_graph, from_object ->
graph_from_object, from_tables -> graph_from_toml, plain_json -> to_plain_json, FAILED -> TOOL_FAILED_MESSAGE; Handoff.taken -> on_handoff
(a constructor parameter: public). ForeignInputFilter, foreign_agents, is_foreign_filter: Sdk... (the module is agents.sdk now).
`Run` stays ours (house/names.md: keep); the other parts have renamed endpoints.embedded.background.Run and stores.memory.running.Run.
Agent.expanded_handoffs (was .ways) is a property of a public class and not in the README.

NOT FROZEN BY NAME, BUT USER-FACING. `Transcript` (handoffs.nesting) is what a user's input filter receives and returns, and
`Mapper`/`Markers` go with it. No document names convo.handoffs and the package is dropped anyway; renamed to HandoffTranscript,
HistoryMapper, HistoryMarkers, fields unchanged (history, before, new, input). The message "return a Transcript" in
build_handoff_input says the old name: change it by hand to "return a HandoffTranscript".

STRINGS TO CHANGE BY HAND, IN THE SAME COMMIT AS THE EVENT NAMES
- run/moves.py: IllegalMove(..., "Answered", ...) and (..., "Decided", ...); run/inbox.py: "Decided". Elsewhere type(event).__name__ is
  used, so the error's text changes with the class: "a run that is done cannot take InputAdded". tests/run/test_approvals.py:92 and
  tests/run/test_runs.py:100 match "cannot take Said" and "cannot take Stop". The code illegal_move stays.
- engine/performing.py: Conduct.at (a hook, by default nowhere) is called with f"before {type(effect).__name__}", f"after {type(event).__name__}",
  "before Answered" and "after Answered". The first two change with the classes, the two literals do not: change them by hand.
- tests/behaviours/test_sessions.py:140 compares call.stage.name with "UNKNOWN" (now OUTCOME_UNKNOWN).
- Docstrings that name functions: `convo.runstate.making.made`, `convo.run.keeping.taken`, "as `recover`", "As `Call.is_decided`", "before
  `Resume`", "raises: as `read`", "as `waiting`", the table of effects in run/effects.py and {"parallel"} in Limits.
- tests/clients/hands.py imports `runstate.State as State` beside its own RunState (the SDK's): move.py reports ALIAS and keeps the alias;
  harmless.

ATTRIBUTES: what the script must follow
- Fields are also keywords of constructors and of dataclasses.replace(): replace(run, batch=...), Run(used=..., always=..., reasons=...,
  staged=...), Call(..., to=to), Account(..., values=..., base=..., own=...), Version(keys=..., older=..., newer=..., reads=..., room=...).
- The same words are JSON keys in run/keeping.py and run/inbox.py ("batch", "guards", "used", "always", "staged", "to", "ran", "inner",
  "verdict", "parallel", "place") and must NOT change: they are strings or members of a dict there (document["batch"]). `hosted`, `tool`
  and `agent` are read from both a Call and a document in inbox.
- Phase and Stage: only member names change; PHASE_WORDS and STAGE_WORDS hold the stored words. The VALUES are shown to people
  ("a run that is guarding its input"): "stopped" should read "cancelled", "handing over" "handing off" (WORDS.md), in a commit of its own.
- runstate.shape.Rule.path_pattern and is_valid are NamedTuple fields, also passed by position and as needed=True (-> is_required=True).
- run.state.Call and runstate.identity.Call were one word: ToolCall is a call in a run, StateCall a call in a RunState document.
  Pending -> PendingCall (document), Waiting -> PendingApproval (stored run). Waiting.arguments, agent, call_id, tool stay.
- run.state.Call.approved and run.inbox.Waiting.approved are bool or None; ApprovalDecided.approve stays (it is the command's word).

MODULES
- runstate.common is a name that STYLE forbids (no utils, helpers, manager). Better: runstate.mapping, or two modules: runstate.run_items
  (run_items, values, account) and runstate.resolve (whose, batch, lasting). A row cannot be renamed from here without leaving the old one.
- runstate.versions stays a package of one file a label; it is not in the plan, and its names are in this table. A label with only keys
  (v1_1, v1_2, v1_4, v1_5, v1_6, v1_9, v1_11, v1_12, v1_16, v1_17) is a row of data: a table in versions/__init__ would replace ten files.
- move.py was run on a copy of the tree with this table: no UNSAFE, no COLLISION, no IMPORT CLASH in this part. NAMES, DOCS and MOVES only:
  it does not read ATTRIBUTES and PARAMETERS, so those are checked for existence alone. Every module of this part was then imported
  alone in a fresh process and loads, but for runstate.preflight: it loads the linter, and plan.py's rows make convo.config.settings,
  config.credentials and config.schema a circle (cannot import name 'EXTRA_FIELDS'). That is another part's row; it fails for
  convo.config.settings, inspect.view and lint.* alike. preflight by itself is unproven until that circle is gone.

MERGE OR INLINE
- Same constant in several places: "mcp_approval_response" (account.VERDICT, batch.VERDICT), "tool_approval_item" (run_items, told, nesting),
  ("context", "tool_invocations") (reading.LEDGER, v1_15.LEDGER and literals in state and batch), ("context", "function_tool_approvals") (v1_18
  and whose), "input_item" (run_items, v1_15), AGENTS (shape, whose; same tuple), "mcp_approval_request" (answers and literals elsewhere). One each,
  in runstate.format. The second of each has a leading underscore here so that the merge does not clash.
- HINT of foreign_behind and of foreign_fields are the same text, now in one module: keep UNSUPPORTED_HINT, delete _UNSUPPORTED_HINT.
- identity.PARSER/_refuse and tools.arguments.PARSER/_refuse: the same strict decoder. identity.Lookup is tools.Lookup again (kept apart so
  that runstate does not import tools); identity.layers repeats tools.naming._meant.
- moves._around/_within and inbox._around/_told do the same over a Run and over its document, as do moves._verdict and inbox._verdict. The
  inbox could be data over the machine if tools were optional in run_from_json.
- version.none_of, no_records, no_room, as_it_is: defaults of one field each; None as default and a check at the one caller is shorter.
- recovering._calls and at_rest repeat one loop (STARTED -> output or UNKNOWN). v1_15._by_name and v1_18._older: the same merge of a record.
- One-caller hops to inline: batch._tool, batch._inside, processed.waiting_inside, making._response, forms._cannot, forms._enumerated,
  keeping._inner; moves._finished (two callers, one line). taking._check_sendable keeps its import of preflight inside the function.
- Public names without a user in another new module (make_handoff_tool_name, classify_call, strip_annotations, most constants) may become
  private after the merge; tests import some of them (tests/handoffs imports tool_name), so that is a step of its own.
"""
