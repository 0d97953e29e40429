"""Final names for convo/engine: packages chat and agent_runner."""

NAMES = {
    # -- chat.turn ---------------------------------------------------------------------------------
    "engine.turn": {
        "STOPPED": "INTERRUPTED_ERROR",
        "UNFINISHED": "UNFINISHED_STATUSES",
        "NOT_PARAMETERS": "NON_PARAMETER_FIELDS",
        "Asking": "RequestOptions",
        "Times": "RequestTiming",
        "Seen": "InputOverride",
        "Closing": "ResponseHook",
        "nothing_beside": "return_no_update",
        "Turn": "ChatTurn",
        "_with": "_append_update_items",
        "cut_short": "make_incomplete_error",
        "failure_in": "make_response_fault",
    },
    "engine.calling": {
        "TRIES": "MAX_TRIES",
        "LONGEST_BEGINNING": "MAX_PREAMBLE_EVENTS",
        "LONGEST_BACKOFF_S": "MAX_BACKOFF_S",
        "LONGEST_WAIT_S": "MAX_RETRY_AFTER_S",
        "Opened": "StartedStream",
        "Open": "StreamOpener",
        "call": "open_with_retry",
        "_may_go_out_again": "_can_retry",
        "_called_again": "_retry",
        "_first_piece": "_start_stream",
        "_wait": "_compute_wait_s",
        "named_wait_s": "get_retry_after_s",
    },
    "engine.owner_tail": {
        "ANSWERED": "CONTINUABLE_STATUSES",
        "Tail": "OwnerTail",
        "owner_tail": "load_owner_tail",
        "_chain_here": "_load_local_chain",
        "_conversation_here": "_load_local_conversation",
        "_conversation": "_fetch_remote_conversation",
        "_items_after": "_get_items_after_confirmed",
        "_drifted": "_make_drift_fault",
    },
    "engine.adopting": {
        "unheard": "make_recovered_link",
        "events": "make_recovered_events",
        "question": "trim_to_last_input",
        "_asks": "_is_client_input",
    },
    # -- chat.session_record -----------------------------------------------------------------------
    "engine.record": {
        "Beside": "RunUpdate",
        "NOTHING": "NO_UPDATE",
        "Record": "SessionRecord",
        "Before": "RecordSnapshot",
        "_growth": "_make_appends",
        "_CARRYING": "_SHIELDED_TASKS",
        "whole": "shielded",
        "reopened": "load_session_record",
        "handle_of": "get_endpoint_handle",
        "last_link": "load_last_link",
    },
    "engine.edges": {"Edges": "ChatDeps"},
    "engine.naming": {
        "SCRATCH": "SCRATCH_PREFIX",
        "WORDS": "NAME_WORDS",
        "LONGEST": "NAME_MAX_CHARS",
        "TAKEN": "RESERVED_PREFIXES",
        "NAMED_LIKE": "NAME_HINT",
        "name_for": "make_session_name",
        "fit": "validate_session_name",
        "free_name": "find_free_session_name",
    },
    "engine.lease": {
        "TTL_S": "SESSION_LEASE_TTL_S",
        "writing": "acquire_session_lease",
        "writer": "describe_session_writer",
        "resuming": "acquire_state_lease",
        "_what": "_get_lease_name",
        "_title": "_get_session_title",
        "_instead": "_make_busy_hint",
    },
    # -- chat.conversation -------------------------------------------------------------------------
    "engine.chat": {
        "NAMES": "NAME_ATTEMPTS",
        "HEADS": "HEAD_ATTEMPTS",
        "unheard": "ignore_notice",
        "merged": "merge_file_edits",
    },
    "engine.turning": {
        "after_turn": "find_turn_end",
        "around": "find_adjacent_links",
        "before_the_last": "find_last_turn_start",
        "items_of": "get_items_up_to_turn",
    },
    # -- chat.history_nav --------------------------------------------------------------------------
    "engine.heads": {
        "Left": "UndoEntry",
        "Heads": "UndoStack",
        "last_said": "get_last_user_items",
        "standing_at": "make_session_at_turn",
    },
    # -- chat.open ---------------------------------------------------------------------------------
    "engine.opening": {
        "REPLAY_FILE": "DEFAULT_REPLAY_FILE",
        "recorded": "find_selected_session",
        "fork": "fork_session",
        "one_list": "make_unforkable_error",
        "_begin": "_make_session",
        "Start": "StartingPoint",
        "_at_session": "_start_session",
        "_at_file": "_start_replay",
        "_at_response": "_start_chain",
        "_not_kept": "_make_not_stored_error",
        "_at_conversation": "_start_conversation",
        "STARTS": "START_LOADERS",
        "history_of_response": "fetch_response_history",
        "history_of_conversation": "load_conversation_history",
        "free_file": "find_free_file",
        "numbered": "iter_numbered_paths",
    },
    # -- chat.session_admin ------------------------------------------------------------------------
    "engine.keeping": {
        "ALL": "MAX_LISTED_RUNS",
        "Gone": "RemovedSession",
        "rename": "set_session_name",
        "remove": "delete_sessions",
        "_remove": "_remove_session",
        "_paths": "_load_longest_paths",
        "_left": "_count_remaining",
        "_is_there": "_is_stored",
        "kept": "describe_remaining_copies",
        "_held": "_lease_sessions",
    },
    "engine.repairing": {
        "keep_session": "save_repaired_session",
        "check_name": "check_session_name_free",
        "_parent": "_find_parent_id",
    },
    # -- chat.lookup -------------------------------------------------------------------------------
    "engine.finding": {
        "LAST": "LAST_HANDLE",
        "WORDS": "HANDLE_KINDS",
        "find": "resolve_handle",
        "last_used": "load_last_used_session",
        "last_answered": "load_last_answered_session",
        "the_session": "load_session",
        "session_of_run": "load_session_of_run",
        "by_handle": "find_session_by_handle",
        "absolute": "to_absolute_path",
        "with_turn": "split_turn_suffix",
        "_is_there": "_is_existing_path",
        "the_link": "load_link",
        "the_conversation": "load_stored_conversation",
        "_as_found": "_to_found",
    },
    "engine.directory": {
        "Other": "UnrecordedConversation",
        "Directory": "StoreListing",
        "directory": "list_store",
        "_kind": "_find_kind",
        "_theirs": "_load_unrecorded_links",
        "_chains": "_list_chain_ends",
        "_conversations": "_list_conversations",
        "as_list": "store_listing_to_json",
    },
    "engine.glance": {
        "OTHERS": "OTHER_CLIENTS_HINT",
        "Glance": "SessionSummary",
        "glance": "load_session_summary",
        "others_answered": "get_other_clients_hint",
        "unacknowledged": "load_unconfirmed_items",
        "as_record": "session_summary_to_json",
    },
    # -- chat.view_loader --------------------------------------------------------------------------
    "engine.looking": {
        "ANSWERED": "ANSWERED_STATUSES",
        "look": "load_handle_view",
        "look_at_file": "load_file_view",
        "mirror_at": "find_mirror_session",
        "of_session": "load_session_view",
        "of_link": "load_response_view",
        "of_conversation": "load_conversation_view",
        "SESSIONS": "SESSION_LOADERS",
        "KINDS": "VIEW_LOADERS",
        "Held": "RecordedState",
        "_held": "_load_path_state",
        "_as_recorded": "_load_session_state",
        "_as_in_file": "_load_replay_state",
        "_as_in_conversation": "_load_conversation_state",
        "READ": "STATE_LOADERS",
        "READ_HERE": "STORED_STATE_LOADERS",
        "_kin": "_load_related_links",
        "_others": "_load_shared_links",
        "_through": "_load_conversation_links",
        "_each": "_sort_unique",
        "_places": "_build_path_index",
        "_names": "_load_session_names",
    },
    "engine.walking": {
        "MOST_RESPONSES": "MAX_CHAIN_RESPONSES",
        "GONE": "NOT_FOUND_STATUS",
        "walk": "fetch_remote_view",
        "_conversation": "_fetch_conversation",
        "_chain": "_fetch_chain",
        "_back_from": "_fetch_response_and_previous",
    },
    "engine.open_runs": {
        "OPEN": "OPEN_RUN_STATUSES",
        "AGAIN": "RERUN_CALLS_KEY",
        "entry": "make_call_key",
        "open_run": "load_open_run",
        "_as_open": "_to_open_run",
        "_waits": "_get_pending_ids",
    },
    # -- chat.watch --------------------------------------------------------------------------------
    "engine.watching": {
        "EVERY_S": "POLL_INTERVAL_S",
        "UNFINISHED": "ACTIVE_STATUSES",
        "Pulse": "ConversationVersion",
        "watch": "watch_conversation",
        "pulse": "load_conversation_version",
        "written": "read_replay_stamp",
        "under_way": "is_in_progress",
    },
    # -- chat.preview ------------------------------------------------------------------------------
    "engine.coming": {
        "OF_THE_LAST": "NON_REPEATED_FIELDS",
        "stands": "make_continuation_state",
        "link_at": "find_current_link",
        "repeated": "get_repeated_parameters",
        "spoken_with": "get_instructions",
        "QUICK": "MAX_COUNTED_ITEMS",
        "Counting": "RequestTokenCounter",
        "counted_here": "skip_remote_count",
        "tried": "make_endpoint_counter",
        "coming": "build_next_request",
        "window_now": "measure_context_window",
        "_counted": "_select_counted_fields",
    },
    "engine.sent_request": {
        "request_of": "rebuild_request",
        "as_sent": "rebuild_link_request",
        "fields": "rebuild_request_fields",
        "travelled": "rebuild_request_body",
        "_owner_of": "_get_request_owner",
    },
    # -- endpoints.base ----------------------------------------------------------------------------
    "engine.paging": {
        "PAGE": "PAGE_ITEMS",
        "MOST_ITEMS": "MAX_LIST_ITEMS",
        "MOST_BYTES": "MAX_LIST_BYTES",
        "pages": "iter_pages",
        "every": "list_all_items",
    },
    # -- chat.files, chat.item_file, chat.state_file -----------------------------------------------
    "engine.replay_file": {
        "LOOKS_LIKE": "REPLAY_FILE_HINT",
        "as_text": "format_replay_file",
        "_is_there": "_is_existing_file",
        "_items": "_parse_items",
        "_lack": "_find_item_fault",
    },
    "engine.attaching": {
        "LARGEST": "MAX_ATTACHMENT_BYTES",
        "PDF": "PDF_TYPE",
        "BEGINNINGS": "SIGNATURE_TESTS",
        "attached": "load_attachment",
        "_read": "_read_attachment",
        "_text": "_decode_attachment",
        "_neither": "_make_unsupported_type_error",
        "_name": "_format_filename",
        "_inline": "_format_data_url",
    },
    "engine.schema": {
        "NOT_STRICT": "NON_STRICT_KEYWORDS",
        "NAMED_PARTS": "SCHEMA_MAP_KEYWORDS",
        "VALUES": "VALUE_KEYWORDS",
        "text_format": "load_text_format",
        "strict": "is_strict_schema",
        "_read": "_read_schema",
        "_no_number": "_reject_constant",
        "_is_object": "_is_object_schema",
        "_closed": "_is_closed_object",
        "_parts": "_iter_subschemas",
        "_each": "_to_list",
    },
    "engine.named_file": {
        "BYTES": "MAX_TEXT_FILE_BYTES",
        "ENDLESS": "MAX_DEVICE_BYTES",
        "text_of": "read_text_file",
        "all_of": "read_whole_stream",
        "_read": "_read_limited",
        "_at_once": "_open_nonblocking",
    },
    "engine.whole_file": {
        "NO_ROOM": "DISK_FULL_ERRNOS",
        "PRIVATE": "PRIVATE_MODE",
        "lies_at": "resolve_links",
        "put": "write_atomic",
        "why": "format_os_error",
        "_replace": "_replace_file",
        "_fault": "_make_write_fault",
    },
    "engine.item_file": {
        "UNNAMED": "UNNAMED_FILE",
        "WRAPPERS": "WRAPPER_FIELDS",
        "read_items": "read_item_file",
        "check_free": "check_new_item_file",
        "write_items": "write_item_file",
        "understood": "parse_item_file",
        "_of_lines": "_parse_rows",
        "_exported": "_parse_export",
        "_by_line": "_load_json_lines",
        "_checked": "_validate_items",
        "_wrapper": "_find_wrapper_field",
    },
    "engine.state_file": {
        "MEMBERS": "STATE_MARKERS",
        "A_STATE": "STATE_FILE_HINT",
        "ANOTHER": "OTHER_FILE_HINT",
        "LIST": "ITEM_LIST_PATTERN",
        "load": "load_state_file",
        "judged": "parse_state_bytes",
        "taken": "read_state_bytes",
        "piped": "read_state_stream",
        "means_to_be_a_state": "is_state_like",
        "save": "save_state_file",
        "writable": "check_state_path",
    },
    # -- agent_runner.config -----------------------------------------------------------------------
    "engine.conduct": {
        "OURS": "RESERVED_SETTINGS",
        "CLIENT_TOOLS": "CLIENT_TOOL_TYPES",
        "OWN_IT": "OWN_HISTORY_HINT",
        "Route": "ModelRoute",
        "nowhere": "noop_test_hook",
        "Conduct": "RunConfig",
        "check": "validate_run_config",
        "_inside": "_validate_nested_run",
        "inside": "make_nested_config",
        "_numbers": "_validate_limits",
        "_hosted": "_validate_hosted_tools",
        "_is_for_the_client": "_is_client_tool",
        "_settings": "_validate_settings",
        "_model": "_validate_model",
        "_refused": "_make_wrong_owner",
    },
    # -- agent_runner.loop -------------------------------------------------------------------------
    "engine.performing": {
        "Inside": "NestedRunner",
        "Performing": "RunLoop",
        "DOES": "EFFECT_HANDLERS",
        "_call_of": "_find_call",
        "_tripped": "_make_guardrail_event",
    },
    "engine.telling": {
        "told": "make_run_event",
        "title": "get_call_title",
        "started": "make_tool_started_event",
        "output": "make_tool_output_event",
        "waiting": "describe_pending_call",
        "paused": "make_paused_event",
        "failed": "make_failed_event",
        "_named": "_make_call_fields",
    },
    # -- agent_runner.persistence ------------------------------------------------------------------
    "engine.run_keeping": {
        "Status": "AgentRunStatus",
        "STATUS": "STATUS_BY_PHASE",
        "ORIGIN": "AGENTS_SOURCE_KEY",
        "REPEATED": "IDEMPOTENT_EFFECTS",
        "Keeper": "RunRepository",
        "_entry": "_make_call_key",
        "_of_batch": "_select_batch_calls",
        "read_run": "load_run",
        "appended": "collect_appended_items",
        "newest_of": "find_open_run_row",
        "opened": "open_run_repository",
        "kept_run": "load_run_row",
    },
    "engine.standing": {
        "View": "ModelView",
        "view_of": "make_model_view",
        "Standing": "RunCheckpoint",
        "unanswered": "drop_partial_response",
        "written": "run_checkpoint_to_json",
        "_written": "_view_to_json",
        "read": "load_run_checkpoint",
        "_read": "_load_view",
    },
    "engine.left_runs": {
        "MANY": "MAX_SCANNED_RUNS",
        "Left": "OrphanedRun",
        "left_runs": "list_orphaned_runs",
        "_left": "_load_orphaned_run",
        "_cut_off": "_iter_interrupted_calls",
    },
    # -- agent_runner.prepare ----------------------------------------------------------------------
    "engine.preparing": {
        "CODE": "INPUT_FILTER_CODE",
        "Foreseen": "PreparedRequest",
        "Input": "RunInput",
        "begun_with": "build_run_input",
        "prepared": "prepare_agent_request",
        "foreseen": "preview_agent_request",
        "_to_be_opened": "_drop_foreign_reasoning",
        "_seen": "_make_input_override",
        "_filtered": "_apply_input_filter",
        "_check_outputs": "_check_outputs_present",
        "_instructed": "_set_instructions",
        "_are_items": "_is_item_list",
        "_new": "_select_new_items",
    },
    "engine.agent_asking": {
        "Asked": "AgentRequest",
        "asked": "build_agent_request",
        "session_cache_key": "make_session_cache_key",
        "_is_official": "_is_openai_url",
        "_route": "_select_route",
        "_is_on": "_is_enabled",
        "_instructions": "_resolve_instructions",
        "_parameters": "_build_parameters",
    },
    "engine.handing": {
        "way_of": "resolve_handoff",
        "planned": "plan_handoff_input",
        "tell": "call_on_handoff",
        "view": "build_handoff_view",
        "_transcript": "_build_transcript",
    },
    # -- agent_runner.runner, agent_runner.run_state -----------------------------------------------
    "engine.running": {
        "BETWEEN": "PHASES_WITHOUT_CALLS",
        "Running": "AgentRunner",
        "_to_be_asked": "_iter_next_model_calls",
        "_has_ready": "_has_ready_calls",
        "_own_it": "_make_own_history_hint",
        "to_the_end": "drain_events",
        "asked_of": "parse_nested_input",
    },
    "engine.run_state": {
        "state_of": "build_run_state",
        "_turns": "_build_turns",
        "_of_link": "_get_response_fields",
    },
    # -- agent_runner.tasks ------------------------------------------------------------------------
    "engine.at_once": {
        "THEIRS": "USER_CODE_ERRORS",
        "Heard": "TaskResult",
        "AtOnce": "RunTasks",
        "_next": "_next_event",
    },
    # -- agent_runner.user_code --------------------------------------------------------------------
    "engine.theirs": {
        "THEIRS": "IN_USER_CODE",
        "as_theirs": "user_code_scope",
        "Outcome": "CallOutcome",
        "outcome": "capture_async",
        "_awaited": "_capture_awaitable",
        "_staying": "_capture_system_exit",
        "told_by": "call_user_code",
        "told_whether": "call_user_predicate",
        "spoken": "format_exception",
        "came_of": "capture",
        "on_thread": "capture_on_thread",
    },
    "engine.hands": {
        "Call": "ThreadJob",
        "KEPT": "MAX_IDLE_THREADS",
        "_idle": "_idle_queues",
        "take": "submit_to_thread",
        "_serve": "_run_worker",
    },
    "engine.tooling": {
        "FAILED": "TOOL_FAILED_CODE",
        "TIMED_OUT": "TOOL_TIMEOUT_CODE",
        "carried_out": "run_tool_call",
        "_late": "_make_timeout_output",
        "worded": "make_failure_output",
        "_sayable": "_ensure_json_output",
    },
    "engine.guarding": {
        "CODE": "GUARDRAIL_FAILED_CODE",
        "asked": "run_guardrail",
    },
}

ATTRIBUTES = {
    "engine.turn": {
        "Asking.seal": "encrypt_reasoning",
        "Asking.sent": "build_input",
        "Asking.body": "build_body",
        "Times.at": "started_at",
        "Times.began": "start_ticks",
        "Times.first": "first_output_ticks",
        "Seen.sent": "request_input",
        "Turn.tries": "request_count",
        "Turn.unwanted": "is_rejected",
        "Turn._asking": "_options",
        "Turn._edges": "_deps",
        "Turn._doubt": "_check_tail",
        "Turn._noted": "_notify",
        "Turn._seen": "_input_override",
        "Turn._closing": "_on_response",
        "Turn._partial": "_accumulator",
        "Turn._text": "_streamed_text",
        "Turn._differs": "_has_text_mismatch",
        "Turn._ignored": "_ignored_fields",
        "Turn._asked": "_requested_state",
        "Turn._sent": "_request_input",
        "Turn._adopted": "_recovered_path",
        "Turn._times": "_timing",
        "Turn._limited": "_make_incomplete_event",
        "Turn._answer": "_stream_response",
        "Turn._open": "_send_request",
        "Turn._settled": "_recover_response",
        "Turn._claimed": "_claim_links",
        "Turn._doubting": "_require_tail_check",
        "Turn._take": "_process_event",
        "Turn._end": "_complete",
        "Turn._cut_off": "_save_partial",
        "Turn._link_id": "_choose_link_id",
        "Turn._as_link": "_make_link",
        "Turn._error": "_make_link_error",
    },
    "engine.calling": {"Opened.events": "first_events"},
    "engine.record": {
        "Beside.then": "appended_items",
        "Record.move": "commit",
        "Record._move": "_commit",
        "Record.note": "commit_run",
        "Record._note": "_commit_run",
        "Record.last": "last_link",
        "Record.held": "state",
        "Record.saved": "is_saved",
        "Record._saved": "_is_saved",
        "Record._stored": "_stored_path",
        "Record._seen": "_view_path",
        "Record.before": "snapshot",
        "Record.withdraw": "restore",
        "Record._withdraw": "_restore",
        "Record.is_ours": "is_unchanged",
        "Record.update": "update_fields",
        "Before.held": "state",
        "Before.last": "last_link",
        "Before.saved": "is_saved",
        "Before.stored": "stored_path",
    },
    "engine.chat": {
        "Chat.asking": "options",
        "Chat.edges": "deps",
        "Chat.held": "state",
        "Chat.noted": "notify",
        "Chat._file": "_replay_file",
        "Chat._read": "_path_read",
        "Chat.catch_up": "refresh",
        "Chat.say": "send",
        "Chat.keep": "save",
        "Chat.again": "retry",
        "Chat.take_back": "undo",
        "Chat.stand": "set_head",
        "Chat.adopt": "ensure_saved",
        "Chat.exchange": "replace_history",
        "Chat._count_as_written": "_mark_file_written",
        "Chat.reread": "load_state",
        "Chat._take_up": "_apply_file_edits",
        "Chat._ask": "_run_turn",
        "Chat._withdraw": "_discard_input",
        "Chat._begin": "_save_new_session",
        "Chat._go_back": "_save_head",
        "Chat._move": "_save_state",
        "Chat.write": "write_replay_file",
    },
    "engine.heads": {
        "Left.session": "session_id",
        "Left.held": "state",
        "Left.last": "last_link",
        "Left.went": "new_head",
        "Heads.back": "undo",
        "Heads.forward": "redo",
        "Heads._left": "_entries",
    },
    "engine.keeping": {
        "Gone.links": "link_count",
        "Gone.items": "item_count",
        "Gone.runs": "run_ids",
        "Gone.kept": "remaining_copies",
    },
    "engine.directory": {
        "Other.words": "first_words",
        "Directory.others": "unrecorded",
        "Directory.more": "has_more",
    },
    "engine.glance": {
        "Glance.items": "item_count",
        "Glance.waiting": "unconfirmed_count",
        "Glance.turns": "turn_count",
        "Glance.words": "first_words",
    },
    "engine.looking": {
        "Held.mark": "confirmed_head",
        "Held.lost": "unreadable_head",
    },
    "engine.watching": {
        "Pulse.states": "response_statuses",
        "Pulse.run": "run_revision",
        "Pulse.file": "file_stamp",
    },
    "engine.replay_file": {
        "ReplayFile.place": "path",
        "ReplayFile.changed": "is_changed",
        "ReplayFile.said": "read_valid",
        "ReplayFile.check": "check_writable",
        "ReplayFile._seen": "_last_stamp",
        "ReplayFile._stamp": "_read_stamp",
    },
    "engine.item_file": {
        "ItemFile.member": "list_field",
        "ItemFile.request": "request_fields",
        "ItemFile.exported": "is_export",
    },
    "engine.conduct": {
        "Route.asking": "options",
        "Conduct.habits": "handoff_defaults",
        "Conduct.session_input": "session_input_callback",
        "Conduct.route": "resolve_model",
        "Conduct.scratch": "open_scratch_store",
        "Conduct.origin": "agents_source",
        "Conduct.at": "test_hook",
    },
    "engine.performing": {
        "Performing.take": "load",
        "Performing.begin": "start",
        "Performing.hear": "dispatch",
        "Performing.go_on": "resume",
        "Performing._recount": "_load_usages",
        "Performing.taken_up": "preview_resume",
        "Performing.at_rest": "to_storable_run",
        "Performing._known": "_collect_outputs",
        "Performing._remember": "_remember_output",
        "Performing._next": "_perform_effect",
        "Performing._hear": "_dispatch",
        "Performing._ask": "_call_model",
        "Performing._passed": "_on_guardrail_passed",
        "Performing._start": "_start_tool",
        "Performing._check_input": "_start_input_guardrail",
        "Performing._check_output": "_start_output_guardrail",
        "Performing._judge": "_start_approval_check",
        "Performing._halt": "_cancel_tasks",
        "Performing._call": "_run_tool",
        "Performing._check": "_run_guardrail",
        "Performing._judged": "_evaluate_approval",
        "Performing._hand_over": "_perform_handoff",
        "Performing._context": "_make_context",
        "Performing._of_call": "_make_call_context",
        "Performing._let_go": "_shutdown",
        "Performing._inside": "_run_nested",
        "Performing._within": "_is_nested",
        "Performing._conduct": "_config",
        "Performing._keeper": "_repository",
        "Performing._todo": "_pending_effects",
        "Performing._events": "_pending_events",
        "Performing._beside": "_tasks",
        "Performing._doubt": "_check_tail",
        "Performing._told": "_started_call_ids",
        "Performing._results": "_outputs",
    },
    "engine.run_keeping": {
        "Keeper.kept": "run_row",
        "Keeper.standing": "checkpoint",
        "Keeper._origin": "_agents_source",
        "Keeper._started": "_started_at",
        "Keeper.begin": "create",
        "Keeper.keep": "save",
        "Keeper.closed": "build_response_update",
        "Keeper.call": "make_call_entry",
        "Keeper.ledger": "load_calls",
        "Keeper._row": "_build_row",
        "Keeper._moved": "_build_next_revision",
        "Keeper._only_starts": "_has_only_new_starts",
        "Keeper._starts": "_make_start_entries",
        "Keeper._ended": "_make_end_entries",
        "Keeper._left": "_drop_rejected_items",
        "Keeper._since": "_get_items_since_request",
        "Keeper._stands": "_advance_checkpoint",
        "Keeper._view_after": "_extend_view",
    },
    "engine.standing": {
        "View.history": "initial_count",
        "View.upto": "source_head",
        "View.behind": "extend_to",
        "Standing.begun": "input_head",
        "Standing.turn": "request_head",
        "Standing.filtered": "filtered_input",
    },
    "engine.preparing": {
        "Foreseen.asking": "options",
        "Foreseen.sent": "request_input",
        "Input.said": "new_items",
        "Input.seen": "model_items",
        "Input.view": "make_view",
    },
    "engine.agent_asking": {
        "Asked.asking": "options",
        "Asked.answered": "make_response_event",
    },
    "engine.running": {
        "Running.adopt": "import_run",
        "Running.kept": "run_row",
        "Running.pending": "pending_calls",
        "Running.unfinished": "can_resume",
        "Running._check_between": "_check_accepts_input",
        "Running.foreseen": "preview_request",
        "Running.say": "start",
        "Running.decide": "apply_decisions",
        "Running.taken_up": "preview_resume",
        "Running.at_rest": "to_storable_run",
        "Running.go_on": "resume",
        "Running._inside": "_run_nested",
        "Running._conduct": "_config",
        "Running._keeper": "_repository",
        "Running._performing": "_loop",
    },
    "engine.at_once": {
        "AtOnce.against": "rejection",
        "AtOnce.begin": "start",
        "AtOnce.came": "wait_any",
        "AtOnce.drop": "cancel_all",
        "AtOnce.spoken": "guardrails_passed",
        "AtOnce.beside": "stream_guarded",
        "AtOnce._while_guarded": "_stream_while_guarded",
        "AtOnce._listen": "_collect_guardrails",
        "AtOnce._passed": "_on_guardrail_passed",
        "AtOnce._ending": "_is_response_complete",
        "AtOnce._guards": "_guardrail_tasks",
    },
    "engine.theirs": {"Outcome.raised": "exception"},
}

PARAMETERS = {
    "engine.adopting": {
        "unheard.known": "confirmed_count",
        "unheard.at": "found_at",
    },
    "engine.agent_asking": {
        "asked.ask": "effect",
        "asked.base": "base_route",
        "asked.conduct": "config",
        "asked.session": "session_id",
        "session_cache_key.session": "session_id",
        "_route.base": "base_route",
        "_route.conduct": "config",
        "_is_on.one": "tool_or_handoff",
        "_instructions.asking": "options",
        "_parameters.ask": "effect",
        "_parameters.ways": "handoff_offers",
    },
    "engine.at_once": {
        "AtOnce.__init__.passed": "on_guardrail_passed",
        "AtOnce.begin.guard": "is_guardrail",
    },
    "engine.attaching": {
        "attached.place": "file_path",
    },
    "engine.calling": {
        "call.doubt": "check_tail",
        "call.noted": "notify",
        "_called_again.failed": "first_failure",
        "_called_again.doubt": "check_tail",
        "_called_again.noted": "notify",
    },
    "engine.chat": {
        "Chat.__init__.asking": "options",
        "Chat.__init__.edges": "deps",
        "Chat.say.keep": "keep_on_failure",
        "Chat.keep.held": "state",
        "Chat.keep.said": "new_items",
        "Chat.keep.beside": "run_update",
        "Chat.take_back.number": "turn_number",
        "Chat.stand.held": "state",
        "Chat.stand.last": "last_link",
        "Chat.exchange.decide": "make_state",
        "Chat.exchange.made": "make_link",
        "Chat._ask.doubt": "check_tail",
        "Chat._ask.before": "snapshot",
        "Chat._withdraw.before": "snapshot",
        "Chat._begin.held": "state",
        "Chat._begin.wish": "wanted_name",
        "Chat._begin.beside": "run_update",
        "Chat._go_back.held": "state",
        "Chat._go_back.last": "last_link",
        "Chat._move.held": "state",
        "Chat._move.beside": "run_update",
        "unheard.words": "message",
        "merged.held": "state",
        "merged.read": "path_read",
    },
    "engine.coming": {
        "stands.known": "view",
        "link_at.known": "view",
        "repeated.known": "view",
        "spoken_with.known": "view",
        "coming.held": "state",
        "coming.asking": "options",
        "coming.count": "count_tokens",
        "coming.own": "windows",
        "coming.sent": "request_input",
        "window_now.held": "state",
        "window_now.asking": "options",
        "window_now.count": "count_tokens",
        "window_now.own": "windows",
        "window_now.sent": "request_input",
    },
    "engine.conduct": {
        "nowhere.place": "point",
        "check.conduct": "config",
        "check.asking": "options",
        "check.own_it": "own_history_hint",
        "_inside.conduct": "config",
        "_inside.asking": "options",
        "inside.conduct": "config",
        "_numbers.conduct": "config",
        "_model.conduct": "config",
        "_model.asking": "options",
        "_model.own_it": "own_history_hint",
        "_refused.what": "subject",
        "_refused.own_it": "own_history_hint",
    },
    "engine.directory": {
        "as_list.found": "listing",
    },
    "engine.finding": {
        "absolute.place": "path",
        "_is_there.place": "path",
    },
    "engine.glance": {
        "as_record.one": "summary",
    },
    "engine.guarding": {
        "asked.place": "index",
        "asked.said": "value",
    },
    "engine.handing": {
        "planned.habits": "handoff_defaults",
        "tell.way": "handoff",
        "view.todo": "plan",
        "view.habits": "handoff_defaults",
        "view.standing": "checkpoint",
        "_transcript.standing": "checkpoint",
    },
    "engine.hands": {
        "take.told": "on_done",
        "_serve.listening": "queue",
    },
    "engine.heads": {
        "Heads.back.number": "turn_number",
        "standing_at.number": "turn_number",
    },
    "engine.item_file": {
        "read_items.place": "path",
        "check_free.place": "path",
        "write_items.place": "path",
        "write_items.like": "source",
        "understood.place": "file_name",
        "_of_lines.place": "file_name",
        "_of_lines.found": "rows",
        "_exported.place": "file_name",
        "_exported.read": "parse",
        "_exported.found": "value",
        "_by_line.place": "file_name",
        "_by_line.wrong": "error",
        "_checked.place": "file_name",
        "_checked.found": "value",
    },
    "engine.lease": {
        "resuming.state": "state_hash",
        "resuming.name": "document_name",
    },
    "engine.left_runs": {
        "_cut_off.ledger": "calls",
    },
    "engine.looking": {
        "look.files": "read_files",
        "look_at_file.place": "file_path",
        "of_session.files": "read_files",
        "_held.mark": "confirmed_head",
    },
    "engine.named_file": {
        "text_of.name": "path",
        "all_of.opened": "stream",
        "_read.name": "path",
        "_at_once.place": "path",
    },
    "engine.naming": {
        "free_name.wish": "wanted_name",
    },
    "engine.opening": {
        "recorded.wanted": "selection",
        "open_chat.wanted": "selection",
        "open_chat.asking": "options",
        "open_chat.edges": "deps",
        "fork.asking": "options",
        "fork.edges": "deps",
        "_begin.wanted": "selection",
        "_begin.asking": "options",
        "_begin.edges": "deps",
        "_at_session.edges": "deps",
        "_at_file.edges": "deps",
        "_at_response.edges": "deps",
        "_at_conversation.edges": "deps",
        "history_of_response.edges": "deps",
        "history_of_conversation.edges": "deps",
        "free_file.place": "path",
        "numbered.place": "path",
    },
    "engine.owner_tail": {
        "owner_tail.held": "state",
        "_chain_here.held": "state",
        "_conversation_here.held": "state",
        "_conversation.held": "state",
        "_items_after.held": "state",
        "_drifted.held": "state",
    },
    "engine.paging": {
        "pages.page_after": "fetch_page",
        "every.page_after": "fetch_page",
    },
    "engine.performing": {
        "Performing.__init__.conduct": "config",
        "Performing.__init__.keeper": "repository",
        "Performing.__init__.inside": "run_nested",
        "Performing.take.doubt": "check_tail",
        "Performing.begin.doubt": "check_tail",
        "Performing._known.ledger": "started_calls",
        "Performing._hear.heard": "result",
    },
    "engine.preparing": {
        "begun_with.held": "state",
        "begun_with.conduct": "config",
        "prepared.ask": "effect",
        "prepared.keeper": "repository",
        "prepared.base": "base_route",
        "prepared.conduct": "config",
        "foreseen.ask": "effect",
        "foreseen.held": "state",
        "foreseen.last": "last_link",
        "foreseen.base": "base_route",
        "foreseen.conduct": "config",
        "foreseen.session": "session_id",
        "_to_be_opened.how": "agent_request",
        "_to_be_opened.held": "state",
        "_to_be_opened.last": "last_link",
        "_seen.how": "agent_request",
        "_seen.held": "state",
        "_filtered.how": "agent_request",
        "_filtered.sent": "request_input",
        "_filtered.held": "state",
        "_check_outputs.wanted": "sent_items",
        "_check_outputs.items": "filtered_items",
        "_instructed.how": "agent_request",
        "_are_items.made": "value",
        "_new.made": "returned",
        "_new.older": "stored_items",
        "_new.new": "new_items",
    },
    "engine.record": {
        "Record.__init__.last": "last_link",
        "Record.__init__.edges": "deps",
        "Record.__init__.saved": "is_saved",
        "Record.move.held": "state",
        "Record.move.last": "last_link",
        "Record.move.beside": "run_update",
        "Record.move.seen": "view_path",
        "Record._move.held": "state",
        "Record._move.last": "last_link",
        "Record._move.beside": "run_update",
        "Record._move.seen": "view_path",
        "Record.note.beside": "run_update",
        "Record._note.beside": "run_update",
        "Record.withdraw.before": "snapshot",
        "Record._withdraw.before": "snapshot",
        "Record._save.grow": "appends",
        "Record._save.beside": "run_update",
        "_growth.there": "stored_path",
        "whole.work": "coroutine",
        "reopened.edges": "deps",
    },
    "engine.repairing": {
        "keep_session.mended": "repaired",
        "_parent.mended": "repaired",
    },
    "engine.replay_file": {
        "ReplayFile.__init__.place": "path",
        "_is_there.place": "path",
        "_items.place": "path",
    },
    "engine.run_keeping": {
        "Keeper.__init__.kept": "run_row",
        "Keeper.__init__.standing": "checkpoint",
        "Keeper.__init__.origin": "agents_source",
        "Keeper.begin.held": "conversation_state",
        "Keeper.begin.said": "new_items",
        "Keeper.begin.asked": "input_head",
        "Keeper.begin.state": "state_hash",
        "Keeper.keep.standing": "checkpoint",
        "Keeper.keep.held": "state",
        "Keeper.closed.held": "state",
        "Keeper.closed.seen": "link_path",
        "Keeper._row.standing": "checkpoint",
        "Keeper._row.state": "state_hash",
        "Keeper._stands.standing": "checkpoint",
        "Keeper._view_after.seen": "link_path",
        "opened.kept": "run_row",
        "opened.origin": "agents_source",
    },
    "engine.run_state": {
        "state_of.base": "base_state",
        "state_of.own": "allow_duplicate_names",
        "state_of.unknown": "unknown_as_started",
    },
    "engine.running": {
        "Running.__init__.conduct": "config",
        "Running.__init__.keeper": "repository",
        "Running.open.conduct": "config",
        "Running.open.kept": "run_row",
        "Running.adopt.conduct": "config",
        "Running.adopt.state": "state_hash",
        "_to_be_asked.conduct": "config",
    },
    "engine.schema": {
        "text_format.place": "file_path",
    },
    "engine.sent_request": {
        "request_of.known": "view",
        "request_of.number": "request_number",
        "as_sent.known": "view",
        "travelled.before": "confirmed_path",
    },
    "engine.standing": {
        "unanswered.held": "state",
        "unanswered.standing": "checkpoint",
        "written.standing": "checkpoint",
        "read.said": "document",
        "_read.said": "document",
    },
    "engine.state_file": {
        "load.place": "path",
        "taken.place": "path",
        "save.place": "path",
        "writable.place": "path",
    },
    "engine.telling": {
        "told.what": "event_type",
    },
    "engine.theirs": {
        "outcome.thread": "in_thread",
        "told_by.what": "description",
        "told_by.thread": "in_thread",
        "told_whether.what": "description",
        "spoken.raised": "error",
    },
    "engine.tooling": {
        "worded.raised": "error",
    },
    "engine.turn": {
        "Asking.sent.held": "state",
        "Asking.body.sent": "request_input",
        "nothing_beside.held": "state",
        "Turn.__init__.asking": "options",
        "Turn.__init__.edges": "deps",
        "Turn.__init__.doubt": "check_tail",
        "Turn.__init__.noted": "notify",
        "Turn.__init__.seen": "input_override",
        "Turn.__init__.closing": "on_response",
        "Turn._claimed.held": "state",
        "Turn._as_link.saw": "input_path",
        "Turn._as_link.head": "output_path",
        "_with.held": "state",
        "_with.beside": "run_update",
    },
    "engine.turning": {
        "after_turn.number": "turn_number",
        "around.cut": "path",
        "around.last": "last_link",
        "before_the_last.held": "state",
        "before_the_last.last": "last_link",
        "items_of.known": "view",
        "items_of.number": "turn_number",
    },
    "engine.watching": {
        "watch.file": "is_replay_file",
        "pulse.known": "view",
        "written.known": "view",
        "under_way.known": "view",
    },
    "engine.whole_file": {
        "lies_at.place": "path",
        "why.wrong": "error",
        "_is_stream.place": "path",
        "_fault.wrong": "error",
    },
}

DOCS = {
    "agent_runner": """Runs agents over one conversation.

Read `runner` for what can be done with a run, `loop` for how its effects are performed and
`persistence` for what each step makes durable. The state machine itself is `convo.runs`.
""",
    "agent_runner.config": """Run configuration, and what the owner of the state does not allow.

Everything that can be known before a run starts is rejected before it starts: an owner that
stores the history accepts no rewritten history, so no handoff filter, no session limit and no
output guardrail; and no agent may leave the endpoint that has the history.
""",
    "agent_runner.loop": """The run loop: performs the effects that the state machine returns, until none is left.

Tools and guardrails run as tasks; the model is called in the loop itself. Each result is an event
for the state machine, and what it decides is committed before any of it is performed.

Events that a run yields between those of the model:

convo.started       run, agent                                   a run started or resumed
convo.tool_started  call_id, tool, arguments, agent              its start is committed
convo.tool_output   call_id, tool, output, agent                 its output is committed
convo.handoff       call_id, source, target                      agent identities
convo.guardrail     side, name, reason                           it tripped; `convo.failed` follows
convo.warning       message
convo.paused        run, pending                                 the pending calls, see `describe_pending_call`
convo.finished      run, agent, output                           the final output
convo.failed        run, code, message                           the error is raised after it
""",
    "agent_runner.persistence": """Persistence of agent runs: what each step commits, together with the conversation.

The run's row, its tool calls, the new items and the head of the session change in one
transaction, so a killed process leaves a run that matches its conversation. A tool output alone
is written as a call entry; the document in the row may be behind, and `load_run` applies the entries.
A checkpoint says where the run is in the conversation, and what the model sees instead of it.
""",
    "agent_runner.prepare": """Prepare one model call of a run: agent settings, tools, handoffs, and the input.

Everything is evaluated again before each call: instructions may be a function, a tool may be
disabled. A client-owned history may be sent in another form than it is stored. Under an owner
that stores the history, an input filter sees only the unconfirmed items and must keep every tool output.
""",
    "agent_runner.run_state": """Export a stored run as a RunState.

The row says where the run is; the conversation has its items, and its links have the response
ids and usage. Responses are recognized in the items alone, because after a handoff with a
summary the links are on another path than the conversation.
""",
    "agent_runner.runner": """The public API of agent runs over one conversation.

    runner = await AgentRunner.open(chat, graph)          loads the open run of the session, if any
    async for event in runner.start([user("hi")]): ...    starts a run
    runner.pending_calls                                  calls that need approval, once it is paused
    await runner.apply_decisions(ApprovalDecided("call_1", approve=True))
    async for event in runner.resume(): ...               after decisions, a failure or a killed process

A decision is committed before it is performed. After a kill another process loads the run and
resumes it: no request and no tool call is repeated, and a call that started without an output
needs a decision. A failed request leaves the run open; a tripped guardrail or user code that raised ends it.
""",
    "agent_runner.tasks": """Concurrent tasks of one run: tools, guardrails, and guardrails beside the model's stream.

Each task ends with an event for the state machine. An error of user code is such an event too
(`EffectFailed`); an error of the endpoint or the store is raised.
""",
    "agent_runner.user_code": """Call user code: tools, guardrails, instructions, filters.

It may be sync or async and may raise anything, so the outcome is returned as a value and the
caller decides what it means. Sync code that can take long runs on daemon threads that nothing
waits for: a tool that never returns keeps its thread, and does not delay the exit of the process.
`IN_USER_CODE` is set while it runs.
""",
    "chat": """A conversation: open it, run a turn, look it up, preview the next request.

Read `conversation` for what can be done with an open one and `turn` for one request and its
response; `session_record` commits both.
""",
    "chat.conversation": """A conversation that this process has open for writing.

Input is committed at the head before anything is sent; `ChatTurn` does the rest. A replay file is
read before a turn and written after it, and edits made in between become part of the history.
A turn number in a handle is resolved to a position here: histories are cut between turns only.
""",
    "chat.files": """Files of a chat: replay files, attachments, JSON schemas, and safe reading and writing.

A replay file is a JSON list of input items that people may edit. Files are replaced atomically, so
a reader sees the old or the new one. Reading is bounded: an endless device or a pipe without a
writer raises Unreadable.
""",
    "chat.history_nav": """Undo and redo in a conversation, and session records at an earlier turn.

Undo moves the head to the end of an earlier turn; links keep what came after it, so redo is
possible until something else is sent.
""",
    "chat.item_file": """Read and write files of items.

[item, item, ...]                                a replay file
{"input": [...], "previous_response_id": ...}    a request body
{"object": "list", "data": [...]}                a list response of an endpoint
item                                             JSONL, one item a line
item
A conversation that convo exported is read too.
""",
    "chat.lookup": """Resolve handles and list what a store has.

A handle is a response, a conversation, a session's name or id, an agent run, a unique prefix of one
of these, or `@last`. A name wins over a prefix; an ambiguous prefix raises AmbiguousHandle.
Conversations of other clients have no session: they are listed by their last response or their id.
Lists read no history: the store counts.
""",
    "chat.open": """Open the conversation that the options select, or start one.

Two steps, because the session record says at which endpoint its handle is: `find_selected_session`
reads the store, then `open_chat` reads the history with that endpoint. A handle without a
record is read once from its owner and mirrored. Nothing is committed before something is sent.
""",
    "chat.preview": """The next request of a conversation, and requests that were sent, rebuilt.

Both are built by the strategy exactly as a turn builds them; nothing is sent or stored. Requests
are not stored: a link has the input's head, the number of items sent and the parameters.
""",
    "chat.session_admin": """Rename and delete sessions, and save a repaired history as a new session.

Renaming and deleting take the session's lease first, so no open chat loses its record. A repaired
history shares all nodes before the first fix and is a fork of the last response before it.
""",
    "chat.session_record": """The record of an open session: the one way in which it is committed, its name and its lease.

Callers pass the state that the session should have; the appended items and the transaction follow
from the difference to the state it had. One process writes a session: the lease is renewed while
the chat is open and expires when that process died.
""",
    "chat.state_file": """Read and write RunState files.

Files are written atomically with mode 0600: a state has the whole history and the application's context.
At most one byte more than a state may have is read.
""",
    "chat.turn": """One request and its response, and the order of commits.

The input is committed before the request; the link, the output, the head and the confirmed head in one
transaction before the last event is yielded. A cancelled response is stored as unconfirmed items.
A request is retried only until the first output event, and only where the strategy allows it; where the
owner may have received it, its items after the confirmed head are read first and a missed response is recovered.
""",
    "chat.view_loader": """Load a ConversationView of a handle, from the store or from an endpoint; nothing is changed.

A replay file or a local conversation is compared with its record, and differences become notes.
A remote chain is followed back response by response; a remote conversation is only a list of items. An open
agent run is part of the view.
""",
    "chat.watch": """Watch a conversation that another process changes.

Polls the store's data version, then a version of the conversation that reads no items, and loads the view again
only when it changed.
""",
}

MOVES = {
    # Paging lists of an endpoint needs only ItemPage and errors. In chat.lookup it made an import cycle:
    # chat.conversation -> chat.turn -> chat.lookup (paging) -> chat.conversation (naming, lease).
    "endpoints.base": ["endpoints.contract", "endpoints.errors", "engine.paging"],
    # Session names and leases belong to the record; chat.lookup needs both and must not load Chat and ChatTurn.
    "chat.session_record": ["engine.record", "engine.edges", "engine.naming", "engine.lease"],
    "chat.conversation": ["engine.chat", "engine.turning"],
    # Start-up: item_file loads convo.inspect and state_file loads convo.runstate; every chat loads chat.files.
    "chat.files": [
        "engine.replay_file",
        "engine.attaching",
        "engine.schema",
        "engine.named_file",
        "engine.whole_file",
    ],
    "chat.item_file": ["engine.item_file"],
    "chat.state_file": ["engine.state_file"],
    # Start-up: chat.open needs handles and lists, not views; the views load convo.inspect.
    "chat.lookup": ["engine.finding", "engine.directory", "engine.glance"],
    "chat.view_loader": ["engine.looking", "engine.walking", "engine.open_runs"],
    # Neither opens a chat: both write a whole session record. (lookup changes nothing.)
    "chat.open": ["engine.opening"],
    "chat.session_admin": ["engine.keeping", "engine.repairing"],
    # `convo approvals` lists orphaned runs and reads persistence already; it must not load the run loop.
    "agent_runner.persistence": ["engine.run_keeping", "engine.standing", "engine.left_runs"],
    # Start-up: it alone loads runstate.import_ and runstate.export, which a run without a RunState file never needs.
    "agent_runner.runner": ["engine.running"],
    "agent_runner.run_state": ["engine.run_state"],
}

NOTES = """
Shared decisions
- Edges (engine) -> ChatDeps; EndpointDeps is the one of responses_api. Turn (engine) -> ChatTurn. Asking -> RequestOptions.
  Beside -> RunUpdate, Record -> SessionRecord, Conduct -> RunConfig, Standing -> RunCheckpoint, View -> ModelView,
  Keeper -> RunRepository, Performing -> RunLoop, Running -> AgentRunner, Heard -> TaskResult, Outcome -> CallOutcome.
- names.md differs here: Tail -> OwnerTail (not RemoteTail: it also reads our own endpoint), unheard -> make_recovered_link.
- session_admin uses delete_sessions and set_session_name, because cli.records has rename_session and remove_sessions.
- Same old attribute, several classes: `held` -> state, `last` -> last_link, `asking` -> options, `edges` -> deps,
  `noted` -> notify, `doubt` -> check_tail everywhere. `begin`, `keep`, `say`, `sent`, `seen`, `take`, `call`, `history`, `turn`, `at`
  differ by class: a renamer by attribute name alone would be wrong.
- `Keeper.begin` has parameters `held` and `state`: -> conversation_state and state_hash. `Keeper.kept` and `Running.kept` -> run_row.
- make_run_event(event_type, **fields): its first parameter must never be called `name`, `message`, `code`, `run`, `agent`, `side`
  or `output`; those are keys of **fields.
- The document keys "begun", "turn", "filtered", "view", "head", "upto", "history", "items" (engine.standing.written) and "again",
  "origin", "standing" (run_keeping) are stored: string literals, they stay.

Bug found while reading (reproduced on engine.theirs.outcome, not through a whole run): a tool with a parameter called `function` or
`thread` raises TypeError ("got multiple values for argument"), which no except clause of carried_out catches. Tool arguments are
passed as **named through outcome(), on_thread() and came_of(). Pass them as one mapping, or bind with functools.partial before
the call. Renaming thread -> in_thread only moves the clash. Fix it apart from the renaming.

Before the move
- engine.running.__all__ re-exports Conduct, ModelInput, Route, kept_run as strings: delete it and import from the home modules
  (cli.going_on imports kept_run from there).
- engine.repairing imports linting View only for annotations: put it below TYPE_CHECKING and quote it, else `convo sessions`
  loads lint.model through chat.session_admin.
- A module named chat.open hides the builtin where it is imported as a module: import its names, or give it another name in
  HOUSE.md; not corrected here, because HOUSE.md names it.
- `coming` in inspect: two different `requested` met in chat.preview; core renames both, so no LOCAL is needed. No module of this
  part has both pathlib.Path and our Path, so no LOCAL is needed for that either.
- left as strings: thread name "convo-hand", ContextVar name "convo_theirs".

Merge and inline
- ignore_notice (chat) and unheard (transfer.racing) are one function. Give `Chat.notify` a default instead.
- CONTINUABLE_STATUSES (owner_tail), ANSWERED_STATUSES (looking) and ANSWERED_STATUSES (lint view) are one tuple; UNFINISHED_STATUSES
  (turn) and ACTIVE_STATUSES (watching) are another. Both belong to history.records beside LinkStatus.
- SessionRecord.commit/_commit, commit_run/_commit_run, restore/_restore and RunLoop.dispatch/_dispatch are pairs only for
  `shielded`: make it a decorator. transfer.beside uses it too: it could live in runtime.
- _make_call_key (run_keeping) is a hop to make_call_key (open_runs). _load_path_state, _load_session_state are hops in looking.
- plan_handoff_input, resolve_handoff, call_on_handoff have RunLoop._perform_handoff as only caller, resolve_handoff runs twice there:
  resolve once and pass the handoff. run_guardrail has RunLoop._run_guardrail alone.
- RunLoop.start is load plus one line; AgentRunner.preview_resume and to_storable_run only forward to RunLoop.
- _find_call, _has_ready_calls, fetch_response_history, RequestOptions.build_input and build_body are thin; keep build_*, they hide the
  strategy.
- prepare_agent_request assigns repository.checkpoint and saves as a side effect of "prepare": move both into RunLoop._call_model.
- Chat._path_read and SessionRecord.state are written from outside (RunLoop sets chat.record.held): give SessionRecord a method.
- replay_file, attaching, state_file, named_file each open a file with the same except clauses; read_whole_stream,
  _read_attachment, _read_limited and read_state_bytes are four bounded readers: one read_bounded(path, max_bytes).
- `strategy is X` to move into strategy classes: opening (START_LOADERS, find_selected_session, fork_session), looking
  (STATE_LOADERS, _load_shared_links), lease (_get_lease_name, _make_busy_hint), owner_tail, turn (_send_request, _recover_response,
  _complete), coming.make_continuation_state, keeping.describe_remaining_copies, watching.read_replay_stamp, record.get_endpoint_handle.

A person decides
- Chat.load_state both reads the replay file and returns the state; Chat.refresh reads the store. One `reload` may do.
- AgentRunner.stop cancels (event CancelRequested, stored status "stopped"): `cancel` would fit WORDS.md; left, because commands say stop.
- ModelInput stays (term of the SDK: ModelInputData). Hint attributes `session_limit` and `limits` stay.
"""
