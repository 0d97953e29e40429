"""Final names for the second half of convo/cli (inspect .. store; the first half is cli_a.py)."""

NAMES = {
    # ------------------------------------------------------------------ cli.inspect
    "cli.inspect": {
        "inspect": "inspect_command",
        "PREFIXES": "BARE_PREFIXES",
        "Handles": "HandlesArgument",
        "Shown": "InspectFormatFlags",
        "Live": "InspectDisplayFlags",
        "follow": "_watch_one_handle",
    },
    "cli.forms": {
        "printed": "print_views",
        "_object": "_render_json",
        "_raw": "_render_items_json",
        "FORMS": "VIEW_RENDERERS",
    },
    "cli.inspecting_page": {"written": "write_html_page"},
    "cli.watching": {
        "HOME": "CURSOR_HOME",
        "FOOT": "WATCHING_FOOTER",
        "IDLE": "IDLE_FOOTER",
        "END": "QUIT_KEYS",
        "watched": "watch_handle",
        "_painted": "_show_until_key",
        "_shown": "_show_views",
        "_is_file": "_is_unknown_file",
        "paints": "_can_repaint",
        "Painter": "ScreenPainter",
        "rows_of": "_fit_screen_rows",
        "Lines": "ResponseLinePrinter",
    },
    # ------------------------------------------------------------------ cli.lint
    "cli.lint": {"lint": "lint_command", "Format": "LintFormat"},
    "cli.linting": {
        "FOUND": "FINDINGS_EXIT_CODE",
        "PAGES": "RULE_PAGES_PACKAGE",
        "findings": "run_lint",
        "printed": "render_lint_reports",
        "explain": "print_rule",
        "page": "read_rule_page",
    },
    # ------------------------------------------------------------------ cli.manual
    "cli.manual": {
        "PLACE": "MAN_PAGE_PATH",
        "ABOUT": "DESCRIPTION",
        "PLACES": "OTHER_VARIABLES",
        "FILES": "FILE_DESCRIPTIONS",
        "page": "render_man_page",
        "_lines": "_page_lines",
        "_command": "_command_lines",
        "_parameters": "_option_lines",
        "_terms": "_term_lines",
        "_variables": "_describe_variables",
        "_as_is": "_verbatim_lines",
        "_plain": "_escape_roff",
    },
    # ------------------------------------------------------------------ cli.models
    "cli.models": {
        "models": "models_command",
        "Ask": "AskServersOption",
        "list_": "models_list_command",
        "known": "models_known_command",
        "pull": "models_pull_command",
    },
    "cli.providers": {
        "PATIENCE_S": "LISTING_TIMEOUT_S",
        "show": "print_models",
        "open_entry": "_open_provider_entry",
        "key_state": "_make_key_entry",
        "asked": "_fetch_all_model_names",
        "_answered": "_fetch_entry_model_names",
        "said": "_describe_missing_models",
        "local": "_find_built_in_model",
        "as_object": "_models_to_json",
        "as_default": "_default_model_to_json",
        "as_provider": "_entry_to_json",
        "as_error": "_error_to_json",
    },
    "cli.fetching": {"fetch": "run_models_pull", "Progress": "DownloadProgress"},
    # ------------------------------------------------------------------ cli.next
    "cli.next": {
        "next_": "next_command",
        "COUNTS": "COUNT_CHOICES",
        "CountedBy": "CountOption",
        "Prompt": "PromptArgument",
        "Url": "UrlOption",
        "Shown": "NextFormatFlags",
        "Request": "NextRequestFlags",
        "Agents": "NextAgentFlags",
    },
    "cli.upcoming": {
        "SERVED": "SERVED_NOTICE",
        "OWN_KEY": "SERVER_KEY_VARIABLE",
        "Wished": "NextOptions",
        "upcoming": "prepare_next_request",
        "_as_before": "_with_previous_agents",
        "cast_in": "_load_agents",
        "gone_on_with": "_load_continued_view",
        "answers": "_choose_settings_and_model",
        "asking": "_build_request_options",
        "key_env": "_get_key_variable",
        "_auto": "_choose_auto_counter",
        "_endpoint": "_choose_endpoint_counter",
        "_offline": "_choose_offline_counter",
        "COUNTS": "TOKEN_COUNTERS",
        "printed": "print_next_request",
        "_command": "_render_curl_command",
        "served": "_with_server_key",
    },
    "cli.upcoming_run": {"ByAgents": "AgentRequestPreview", "_opened": "_open_read_only_chat"},
    # ------------------------------------------------------------------ cli.output
    "cli.saying": {"say": "print_line", "say_json": "print_json", "note": "print_notice"},
    "cli.failures": {
        "PACKAGE": "PACKAGE_DIR",
        "Failure": "CommandFailure",
        "CUT_OFF": "BROKEN_PIPE",
        "OUTPUT_LOST": "OUTPUT_LOST_CODES",
        "NO_ROOM": "WRITE_ERRNOS",
        "AT_THE_SHELL": "SHELL_HINTS",
        "explain": "to_failure",
        "innermost": "_unwrap_group",
        "misused": "_to_usage_failure",
        "LISTING": "HINT_BY_OPTION",
        "ahead": "_suggest_option_position",
        "tidy": "_format_typer_message",
        "mistake": "_to_internal_failure",
        "place": "_find_own_line",
        "tell": "print_failure",
        "printable": "_escape_controls",
        "show_traceback": "print_debug_traceback",
        "traced": "_format_traceback",
    },
    "cli.exits": {"EXITS": "EXIT_CODES", "IN_WORDS": "_EXIT_CODE_PHRASES", "IN_LINES": "EXIT_CODES_HELP"},
    # ------------------------------------------------------------------ cli.race
    "cli.race": {"race": "race_command"},
    "cli.racing": {
        "TURNS": "DEFAULT_TURNS",
        "EXAMPLE": "RACE_EXAMPLE",
        "Asked": "RaceOptions",
        "race_all": "run_and_print_race",
        "turns_of": "read_race_turns",
        "_run": "_run_with_progress",
        "_tell": "_print_event",
        "as_object": "_race_to_json",
        "_as_owner": "_result_to_json",
        "_as_turn": "_turn_to_json",
    },
    # ------------------------------------------------------------------ cli.redact
    "cli.redacting": {
        "redacted": "redact_if_requested",
        "PATIENCE_S": "PATTERN_TIMEOUT_S",
        "Bounded": "TimeLimitedPattern",
        "_given_up": "_limit_time",
        "_compiled": "_compile_pattern",
        "lines": "format_redactions",
        "as_fields": "redactions_to_json",
    },
    # ------------------------------------------------------------------ cli.repair
    "cli.repair": {"repair": "repair_command"},
    "cli.repairing": {
        "Repair": "RepairOptions",
        "repaired": "run_repair",
        "is_file": "_is_file_name",
        "tell": "_print_repair",
        "_change": "_change_to_json",
        "_kept": "_save_session",
        "_goes_to": "_choose_model_and_scope",
    },
    # ------------------------------------------------------------------ cli.repl
    "cli.at_prompt": {
        "SHOWN_BEFORE": "MAX_PREPENDED_ITEMS",
        "AtPrompt": "ReplController",
        "named_owner": "parse_strategy",
    },
    "cli.standing": {
        "RECENT": "MAX_RECENT_SESSIONS",
        "FORMS": "MEDIA_NAMES",
        "Sums": "SessionLinkCache",
        "_cost": "_sum_cost_usd",
        "check_takes": "check_input_supported",
        "recent": "render_recent_sessions",
    },
    "cli.shortening": {
        "STOPPED": "COMPACTION_STOPPED",
        "shortening": "make_auto_compaction",
        "prepared": "compact_if_due",
        "compacted": "compact_open_chat",
    },
    "cli.changing": {
        "SUFFIX": "DEFAULT_EXPORT_SUFFIX",
        "begun": "open_new_chat",
        "renamed": "rename_open_session",
        "free": "_check_name_free",
        "not_there": "_check_new_file",
        "exported": "export_open_chat",
        "check_no_run": "check_no_open_run",
    },
    # ------------------------------------------------------------------ cli.resolve, cli.lint_target, cli.state_input
    "cli.known": {
        "IDS": "REMOTE_ID_PREFIXES",
        "KINDS": "KIND_BY_PREFIX",
        "NEWEST": "MAX_NEWEST_HANDLES",
        "ELSEWHERE": "NOT_FOUND_HINT",
        "Where": "LookupOptions",
        "known_of": "resolve_handles",
        "print_newest": "print_newest_handles",
        "shown": "render_handle",
        "Search": "HandleResolver",
        "is_path": "is_path_like",
        "is_there": "path_exists",
        "owner_handle": "get_owner_handle",
        "LOCAL": "LOCAL_STRATEGIES",
        "named": "_choose_remote_provider",
    },
    "cli.subject": {
        "PIPED": "PIPED_INPUT_LABEL",
        "Subject": "LintTarget",
        "_begun": "_find_item_lines",
        "subject": "load_lint_target",
        "_waiting": "_read_pending_call_ids",
        "_is_bare": "_is_unrecorded_file",
        "_of_file": "_target_from_file",
        "_of_pipe": "_target_from_stdin",
        "_of_state": "_target_from_state",
        "_places": "_run_state_item_paths",
        "APPROVAL": "_APPROVAL_ITEM_TYPE",
    },
    "cli.states": {
        "PIPE": "STDIN_HANDLE",
        "state_at": "find_run_state",
        "print_states": "print_run_states",
        "shown": "render_run_state_in_format",
        "from_pipe": "read_piped_state",
        "_is_nobodys": "_is_unknown_handle",
    },
    # ------------------------------------------------------------------ cli.resume, cli.resumed_run, cli.decision_flags
    "cli.resume": {
        "resume": "resume_command",
        "State": "StateArgument",
        "Decided": "ApprovalFlags",
        "Going": "ResumeRunFlags",
        "Written": "StateFileFlags",
        "_decide_only": "_decide_without_resuming",
        "_go_on": "_resume_here",
    },
    "cli.resuming": {
        "PAUSED": "PAUSED_EXIT_CODE",
        "OWNED": "AGENT_STICKY_VERSION",
        "Asked": "StateDecisions",
        "Written": "DecidedStateOutput",
        "Choice": "StateCallDecision",
        "Signing": "SigningOptions",
        "proved": "load_verified_state",
        "decide": "write_decided_state",
        "Done": "DecidedState",
        "_as_asked": "_decide_and_relabel",
        "_decided": "_apply_flags",
        "_kept": "_iter_unchanged_notes",
        "_not_sticky": "_format_not_sticky",
        "_choices": "_choose_by_call",
        "_reason": "_parse_rejection",
        "_write": "_write_state",
        "_told": "_report_result",
        "_lost": "_loss_to_json",
    },
    "cli.going_on": {
        "ENDS": "ENDED_STATUSES",
        "Resuming": "ResumeRequest",
        "resume": "resume_paused_run",
        "_as_before": "_with_previous_agents",
        "Opening": "ResumedRunOpener",
        "_opened": "_open_chat",
        "_owner": "_get_owner",
        "_known": "_find_stored_run",
        "_check_same": "_check_state_current",
        "_runs_in": "_iter_stored_runs",
        "_states_in": "_iter_nested_states",
        "_ids": "_collect_pending_call_ids",
        "_is_named": "_is_named_by_flag",
        "_perform": "_decide_and_resume",
        "_comes_to_wait": "_will_pause",
        "_answered": "_iter_answered_call_words",
        "_with_a_person": "_resume_interactively",
        "_aborted": "_abort_run",
        "_tell": "_print_decisions",
        "_waiting": "_list_pending_calls",
        "_decidable": "_list_decidable_calls",
    },
    "cli.verdicts": {
        "Said": "RequestedDecisions",
        "Choice": "CallDecision",
        "events_of": "build_decision_events",
        "choices_of": "choose_decisions",
        "kept_decisions": "iter_unchanged_decision_notes",
        "_flags": "_iter_flags",
        "_named": "_match_calls",
        "_parts": "_split_flag_value",
        "_check": "_check_applicable",
        "_events": "_iter_events",
    },
    "cli.choosing": {
        "Wish": "ChoiceT",
        "ALL": "ALL_CALLS_WORD",
        "rank": "rank_match",
        "chosen": "select_best_matches",
        "outcome_text": "format_decision",
        "kept_text": "format_unchanged_decision",
        "verdict_word": "format_verdict",
    },
    "cli.keys": {"signing_key": "load_signing_key", "_kept": "_read_keyring_key"},
    # ------------------------------------------------------------------ cli.schema
    "cli.schema": {
        "schema": "schema_command",
        "SCHEMAS": "SCHEMA_FILES",
        "names": "complete_schema_name",
        "text": "read_schema",
        "identity": "read_schema_id",
    },
    # ------------------------------------------------------------------ cli.serve
    "cli.serve": {"serve": "serve_command", "WHERE": "LISTEN_PANEL", "WHO": "ACCESS_PANEL"},
    "cli.serving": {
        "SHELLS_ADD": "SIGNAL_EXIT_OFFSET",
        "NEEDS": "REQUIRED_MODULES",
        "add_key": "print_new_key",
        "serve": "run_server",
        "_serve": "_serve_until_stopped",
        "_opened": "_open_migrated_store",
        "logged": "print_access_line",
        "Trouble": "StoreFaultPrinter",
        "reported": "print_internal_error",
        "delayed": "print_shutdown_delay",
        "signals": "stop_event_on_signals",
        "_endings": "_list_stop_signals",
    },
    # ------------------------------------------------------------------ cli.sessions
    "cli.sessions": {
        "sessions": "sessions_command",
        "AT_ONCE": "DEFAULT_LIMIT",
        "Handle": "SessionArgument",
        "Many": "LimitOption",
        "list_": "sessions_list_command",
        "show": "sessions_show_command",
        "search": "sessions_search_command",
        "rename": "sessions_rename_command",
        "rm": "sessions_rm_command",
    },
    "cli.records": {
        "Config": "ConfigPath",
        "ALL": "NO_LIMIT",
        "list_sessions": "print_sessions",
        "show_session": "print_session",
        "search_sessions": "print_search_hits",
        "agreed": "_confirm_removal",
        "removed": "_format_removal",
        "placed": "_locate_hit",
        "as_found": "_search_hit_to_json",
    },
    # ------------------------------------------------------------------ cli.store
    "cli.store": {
        "store": "store_command",
        "migrate": "store_migrate_command",
        "stats": "store_stats_command",
        "check": "store_check_command",
        "backup": "store_backup_command",
        "recover": "store_recover_command",
        "prune": "store_prune_command",
    },
    "cli.storing": {
        "Config": "ConfigPath",
        "Pruning": "PruneOptions",
        "Parts": "SchemaSqlOptions",
        "print_schema": "print_schema_sql",
        "migrate": "run_migrations",
        "stats": "print_tenant_stats",
        "check": "print_store_check",
        "backup": "copy_to_backup",
        "recover": "copy_readable_rows",
        "prune": "prune_tenants",
        "_more": "_format_more",
        "_of_tenant": "_format_tenant",
        "_check_as_record": "_check_to_json",
        "_session_record": "_named_session_to_json",
        "_cut_record": "_truncated_session_to_json",
        "_pruned_record": "_prune_result_to_json",
        "_outcome": "_format_prune_result",
        "_kept": "_load_durable_settings",
        "_seconds": "_parse_older_than",
        "_as_record": "_tenant_stats_to_json",
    },
}

ATTRIBUTES = {
    "cli.inspect": {"Shown.form": "selected_format"},
    "cli.watching": {
        "Painter._painted": "_has_painted",
        "Painter.take": "show",
        "Painter.leave": "close",
        "Lines._told": "_printed_ids",
        "Lines._begun": "_has_header",
        "Lines.take": "show",
        "Lines._say": "_print",
    },
    "cli.fetching": {
        "Progress._doing": "_label",
        "Progress._size": "_size_bytes",
        "Progress._since_s": "_started_s",
        "Progress.begun": "has_started",
        "Progress.told": "update",
        "Progress.end": "finish",
    },
    "cli.next": {
        "Shown.form": "selected_format",
        "Agents.flags": "to_run_flags",
        "Request.system": "instructions",
        "Request.attach": "attachments",
        "Request.store": "store_remotely",
    },
    "cli.upcoming": {
        "Wished.system": "instructions",
        "Wished.attach": "attachments",
        "Wished.store": "store_remotely",
        "Wished.count": "count_by",
        "Wished.run": "run_flags",
    },
    "cli.upcoming_run": {
        "ByAgents.cast": "agent_setup",
        "ByAgents.open_things": "exit_stack",
        "ByAgents.foreseen": "preview_request",
        "ByAgents._route": "_open_route",
    },
    "cli.at_prompt": {
        # The methods of the protocol ui.conversing.Look (switch, own, standing, ...) are in terminal.py, those of Desk in cli_a.py.
        "AtPrompt._sums": "_link_cache",
        "AtPrompt.show": "presenter",
        "AtPrompt.suggest": "complete",
        "AtPrompt.editing": "editing_mode",
        "AtPrompt._request": "_prepare_next_request",
        "AtPrompt._counting": "_choose_token_counter",
        "AtPrompt._move": "_move_lease",
    },
    "cli.standing": {
        "Sums._at": "_read_at",
        "Sums.links": "load_links",
        "Sums.standing": "load_status_line_state",
    },
    "cli.known": {
        "Search._where": "_options",
        "Search.one": "resolve",
        "Search._one": "_resolve",
        "Search._elsewhere": "_resolve_unstored",
        "Search._from_owner": "_refresh_from_owner",
        "Search.owners": "fetch_owner_view",
        "Search._ask": "_fetch_view",
        "Search._choice": "_choose_remote",
        "Search._choice_for": "_choose_owner",
    },
    "cli.subject": {
        "Subject.known": "conversation",
        "Subject.state": "run_state",
        "Subject.places": "explicit_paths",
        "Subject.paths": "item_paths",
        "Subject.report": "build_report",
    },
    "cli.resume": {"Going.flags": "to_run_flags"},
    "cli.resuming": {"Choice.edits": "is_edited", "Done.sticky": "is_sticky", "Signing.verify": "must_verify"},
    "cli.going_on": {
        "Resuming.said": "decisions",
        "Resuming.run": "run_flags",
        "Opening._asked": "_request",
        "Opening._open_things": "_exit_stack",
        "Opening.show": "open",
        "Opening._kept": "_open_stored",
        "Opening._adopted": "_adopt_state",
        "Opening._desk": "_make_chat_context",
        "Opening._pauses": "_make_state_writer",
    },
    "cli.verdicts": {
        "Said.words": "call_values",
        "Said.anything": "has_any",
        "Choice.what": "flag",
        "Choice.words": "text",
    },
    "cli.serving": {"Trouble._said": "_last_message"},
    "cli.storing": {"Pruning.yes": "is_confirmed", "Parts.above": "after_migration"},
}

PARAMETERS = {
    "cli.inspect": {
        "inspect.shown": "output",
        "inspect.live": "display",
        "follow.live": "display",
        "follow.beside": "other_flags",
    },
    "cli.forms": {
        "printed.found": "views",
        "printed.form": "output_format",
        "_object.known": "view",
        "_raw.known": "view",
    },
    "cli.inspecting_page": {"written.found": "views"},
    "cli.watching": {
        "_painted.states": "views",
        "_shown.states": "views",
        "_shown.show": "display",
        "Painter.take.known": "view",
        "Lines.take.known": "view",
        "rows_of.known": "view",
        "rows_of.room": "max_rows",
    },
    "cli.linting": {
        "findings.where": "options",
        "findings.form": "output_format",
        "printed.form": "output_format",
    },
    "cli.lint": {"lint.form": "output_format"},
    "cli.providers": {
        "show.asking": "ask_servers",
        "asked.opened": "entries",
        "as_object.there": "built_in",
        "local.models": "weights_dir",
    },
    "cli.fetching": {
        "Progress.__init__.doing": "label",
        "Progress.__init__.size": "size_bytes",
        "Progress.told.got": "received_bytes",
    },
    "cli.next": {"next_.shown": "output"},
    "cli.upcoming": {
        "upcoming.wished": "options",
        "_as_before.wished": "options",
        "_as_before.known": "view",
        "_as_before.data": "data_dir",
        "gone_on_with.wished": "options",
        "answers.known": "view",
        "asking.wished": "options",
        "asking.known": "view",
        "printed.found": "request",
        "printed.form": "output_format",
        "_command.found": "request",
        "served.found": "request",
    },
    "cli.upcoming_run": {
        "ByAgents.foreseen.known": "view",
        "ByAgents.foreseen.said": "items",
        "ByAgents.foreseen.asking": "options",
        "ByAgents.foreseen.alike": "same_model",
        "_opened.known": "view",
        "_opened.asking": "options",
        "_opened.edges": "deps",
    },
    "cli.saying": {"say.words": "text", "note.words": "text"},
    "cli.racing": {
        "race_all.asked": "options",
        "turns_of.asked": "options",
        "_run.course": "plan",
        "_run.told": "as_events",
        "_tell.kind": "event_type",
        "_tell.figures": "fields",
        "as_object.lanes": "results",
        "_as_owner.lane": "result",
        "_as_turn.lap": "turn",
    },
    "cli.redacting": {"redacted.asked": "requested", "lines.found": "result", "as_fields.found": "result"},
    "cli.repairing": {
        "repaired.asked": "options",
        "repaired.where": "lookup",
        "tell.asked": "options",
        "tell.broken": "target",
        "tell.mended": "result",
        "_change.one": "change",
        "_change.broken": "target",
        "_kept.asked": "options",
        "_kept.broken": "target",
        "_kept.mended": "result",
        "_kept.where": "lookup",
        "_goes_to.broken": "target",
        "_goes_to.where": "lookup",
    },
    "cli.at_prompt": {
        "AtPrompt.next.words": "text",
        "AtPrompt.compact.words": "text",
        "AtPrompt.export.words": "text",
        "AtPrompt._request.said": "items",
        "AtPrompt._move.made": "target",
        "AtPrompt.suggest.before": "text_before_cursor",
        "named_owner.word": "name",
    },
    "cli.shortening": {
        "shortening.at": "compact_at",
        "shortening.own": "window_settings",
        "prepared.seeing": "auto_compaction",
        "compacted.words": "text",
    },
    "cli.changing": {"exported.words": "file_name", "exported.where": "lookup"},
    "cli.known": {
        "known_of.where": "options",
        "Search.__init__.where": "options",
        "Search._elsewhere.unknown": "error",
        "Search._ask.choice": "model",
        "is_there.place": "path",
        "owner_handle.known": "view",
    },
    "cli.subject": {
        "subject.where": "lookup",
        "_waiting.known": "view",
        "_waiting.where": "lookup",
        "_is_bare.where": "lookup",
    },
    "cli.states": {"print_states.form": "output_format", "shown.form": "output_format"},
    "cli.resume": {
        "resume.decided": "decisions",
        "resume.going": "run_flags",
        "resume.written": "state_file",
        "_decide_only.decided": "decisions",
        "_decide_only.agent": "agents",
        "_decide_only.written": "output",
        "_go_on.decided": "decisions",
        "_go_on.going": "run_flags",
        "_go_on.written": "output",
    },
    "cli.resuming": {
        "proved.place": "handle",
        "decide.place": "handle",
        "decide.asked": "requested",
        "decide.written": "output",
        "_as_asked.asked": "requested",
        "_decided.asked": "requested",
        "_kept.asked": "requested",
        "_choices.asked": "requested",
        "_reason.asked": "requested",
        "_reason.words": "value",
        "_told.written": "output",
        "_lost.one": "loss",
    },
    "cli.going_on": {
        "resume.asked": "request",
        "_as_before.asked": "request",
        "Opening.__init__.asked": "request",
        "Opening.__init__.open_things": "exit_stack",
        "_owner.found": "imported",
        "_runs_in.way": "call_path",
        "_states_in.way": "call_path",
        "_merge_decisions.asked": "request",
        "_is_named.said": "requested",
        "_is_named.call": "call_id",
        "_perform.show": "presenter",
        "_perform.asked": "request",
        "_comes_to_wait.running": "runner",
        "_comes_to_wait.said": "requested",
        "_with_a_person.show": "presenter",
        "_with_a_person.before": "start_count",
        "_aborted.show": "presenter",
        "_aborted.before": "start_count",
        "_tell.waits": "pending",
    },
    "cli.verdicts": {
        "events_of.said": "requested",
        "events_of.waiting": "pending",
        "choices_of.said": "requested",
        "choices_of.waiting": "pending",
        "kept_decisions.said": "requested",
        "kept_decisions.waiting": "pending",
        "_flags.said": "requested",
        "_named.word": "value",
        "_named.what": "flag",
        "_named.waiting": "pending",
        "_parts.word": "value",
        "_parts.what": "flag",
        "_parts.waiting": "pending",
        "_check.what": "flag",
        "_events.said": "requested",
        "_events.waiting": "pending",
    },
    "cli.choosing": {
        "chosen.said": "candidates",
        "outcome_text.was": "previous",
        "kept_text.was": "previous",
    },
    "cli.records": {
        "search_sessions.words": "query",
        "placed.words": "query",
        "removed.gone": "session",
        "removed.files": "kept_files",
    },
    "cli.store": {"migrate.above": "after_migration"},
    # With SchemaSqlOptions.after_migration: store_schema_sql(**options._asdict()).
    "stores.open": {"schema_sql.above": "after_migration"},
    "stores.postgres.schema": {"schema_sql.above": "after_migration"},
    "cli.storing": {
        "print_schema.parts": "options",
        "progress_line.doing": "label",
        "prune.asked": "options",
        "_outcome.asked": "options",
        "_outcome.anything": "has_matches",
        "_seconds.written": "text",
    },
}

DOCS = {
    "cli.inspect": """`convo inspect`: show who owns a conversation and what each request sent.

One conversation tree, or its items, JSON, token chart or HTML page. `--watch` repaints the tree while another
process continues the conversation: in place in a terminal, elsewhere one line for each finished response.
Output for programs is never paged. A file with a paused run is shown without a store.
""",
    "cli.lint": """`convo lint`: report state that the next request would be rejected for.

Every handle is loaded before anything is printed, so an unreadable one leaves no half report.
Exit code 4: errors, or with --strict warnings.
""",
    "cli.manual": """The man page, generated from the commands.

`convo --man` prints it. `python -m convo.cli.manual` writes it to completions/convo.1, which the wheel
installs in share/man/man1.
""",
    "cli.models": """`convo models`: list providers and models, download the built-in model.

A provider is opened as a chat opens it and no request is sent; the servers are asked for their models only
with --ask.
""",
    "cli.next": """`convo next`: show the next request of a conversation without sending it.

The handle is resolved as by `convo inspect`, the request built as by `convo chat --from`. Nothing is stored.
Only counting tokens may call the endpoint, and a remote one only with --count endpoint.
""",
    "cli.next_agents": """The next request of a conversation whose answers come from agents.

Instructions, tools, settings and input filter of the agent are applied, so the user's functions are called as
in a turn. No tool runs. The conversation is opened without a write lease and nothing is stored.
""",
    "cli.output": """Output of commands: the answer on stdout, notices and errors on stderr, exit codes.

stdout may be a pipe: it carries the answer or the JSON and nothing else. Errors become text, JSON and an exit
code here and nowhere else. The text of an unknown exception is never printed, because it may quote a key:
only its type and the last line of our code it passed through. Control characters and passwords in URLs are escaped
or removed.
""",
    "cli.race": """`convo race`: run the same turns with all four strategies and compare them.

stderr shows progress in a terminal; --jsonl prints each turn as it ends. Exit code 1: a strategy failed.
""",
    "cli.redact": """`--redact` and `--redact-pattern`: remove secrets from a document, and report what was removed.

A user's pattern gets 3 s for each string, because a bad one never ends; where there is no SIGALRM, or outside the
main thread, it is not limited. The report has kind, place and count and never the text.
""",
    "cli.repair": """`convo repair`: write a repaired copy of an invalid history.

The source is not changed. The copy is a new session or a new file; a valid history gets no copy.
""",
    "cli.repl": """The controller of an interactive chat: what its slash commands and its status line need.

`ReplController` is a chat context that also changes model and strategy, forks, and switches to another
conversation; the lease of the one that it leaves is released. Links are read once for each head, so an idle
prompt reads nothing.
""",
    "cli.repl_actions": """`/new`, `/rename` and `/export` in an open chat.

Each checks everything before it changes anything, because the chat stays open after an error.
""",
    "cli.auto_compaction": """Compaction in an open chat: automatic before a message, and /compact.

Ctrl-C stops either and leaves the history as it was. Loaded with the first message, not with the prompt.
""",
    "cli.resolve": """Resolve handles to conversations: from the store, a file or a remote endpoint.

What the store has, mirrors of remote conversations included, is shown without a request. The endpoint is asked
for a handle that the store does not have, or with --remote; if it cannot be reached then, the mirror is
shown with a notice.
""",
    "cli.lint_target": """The history that `convo lint` and `convo repair` work on.

From a stored conversation, an endpoint, a file or stdin. A file that no session owns is read as it is: items in any
supported form, a request, or a paused run.
""",
    "cli.state_input": """RunState files as input of `convo inspect`, `resume` and `lint`.

A handle with a slash is a file, `-` is stdin; a bare name is a file only if no conversation has that name. A
file is a RunState by its content. Showing one needs no store and imports no endpoint.
""",
    "cli.resume": """`convo resume`: decide on the pending calls of a paused run and resume it.

With --decide-only the decided state is written for the Agents SDK, signed on request: all decisions are
checked before anything is written. The exit code is 3 while a call is undecided.
The signing key comes from a variable, else the keyring; it is never an argument.
""",
    "cli.resumed_run": """Resume a paused run, from a RunState document or from the store.

A document is resumed once: one process of a store holds its lease, and a document whose run the store
already has, by hash or by run id, resumes that run, or fails if the run has ended. The agents must be those of
before; decisions in the document are merged with those in the store.
""",
    "cli.decision_flags": """Match the flags of `convo resume` and `convo approvals` to calls.

A call id wins over a tool name, a tool name over `all`. A name and `all` select undecided calls only; a
decision is changed by the call's id. Two equally exact flags that differ are an error, and then nothing is
decided.
""",
    "cli.commands.schema": """`convo schema`: print the JSON Schema of a command's JSON output.

One JSON Schema 2020-12 file for each form of output in convo/schemas. The number at the end of `$id` is the
version: it stays when a key is added, and grows when a key is removed or changes its meaning. A command that fails
prints `error` instead.
""",
    "cli.serve": """`convo serve`: serve the Responses and Conversations API over HTTP.

Opens and migrates the store, then the socket. The first SIGINT, SIGTERM or SIGHUP ends it gracefully, the second at
once. --new-key prints a key once and stores its hash. stderr has no message text and no keys.
""",
    "cli.sessions": """`convo sessions`: list, show, search, rename and remove stored conversations.

The list is the command that people wait for most often: what it does not need is imported inside the functions.
""",
    "cli.store": """`convo store`: check, back up, recover, migrate, measure and prune the database.

Works on all tenants. `prune` only counts without --yes.
""",
}

MOVES = {
    # Merged with next, every `convo next` would import agents, agent_runner and the SDK adapter; upcoming loads it only for --agent.
    "cli.next": ["cli.upcoming"],
    "cli.next_agents": ["cli.upcoming_run"],
    # talking imports at_prompt for every chat; shortening imports transfer.compact, which desk loads only with the first message.
    "cli.repl": ["cli.at_prompt", "cli.standing"],
    "cli.auto_compaction": ["cli.shortening"],
    # upcoming and talking import changing (check_no_open_run) alone; with at_prompt `convo next` would load the chat context.
    "cli.repl_actions": ["cli.changing"],
    # diff, convert and export import known alone: subject would bring the linter. A state is shown, and decided on, without the
    # store and without endpoints (tests/cli/test_inspect_state.py): states must not import known.
    "cli.resolve": ["cli.known"],
    "cli.lint_target": ["cli.subject"],
    "cli.state_input": ["cli.states"],
    # approvals imports choosing alone; `resume --decide-only` and `resume --help` need neither asyncio nor agents (going_on).
    "cli.resume": ["cli.resuming", "cli.keys"],
    "cli.resumed_run": ["cli.going_on"],
    "cli.decision_flags": ["cli.choosing", "cli.verdicts"],
}

# Not applied: complete rows for the case that command modules stay thin (see NOTES, Start-up). Merge into MOVES to use them.
MOVES_THIN_COMMANDS = {
    "cli.inspect": ["cli.inspect"],
    "cli.inspect_output": ["cli.forms", "cli.inspecting_page"],
    "cli.inspect_watch": ["cli.watching"],
    "cli.lint": ["cli.lint"],
    "cli.lint_output": ["cli.linting"],
    "cli.next": ["cli.next"],
    "cli.next_preview": ["cli.upcoming"],
    "cli.race": ["cli.race"],
    "cli.race_output": ["cli.racing"],
    "cli.repair": ["cli.repair"],
    "cli.repair_output": ["cli.repairing"],
    "cli.resume": ["cli.resume"],
    "cli.state_decisions": ["cli.resuming", "cli.keys"],
}

NOTES = """
Start-up (a person decides, together with cli_a)
- Command modules that hold their implementation load it for --help, usage errors and every Tab. Tried with move.py and all tables on
  a copy; modules of convo loaded by `import convo.cli.X`, before -> after: inspect 6 -> 123, lint 6 -> 133, next 7 -> 65, race 6 -> 81,
  repair 5 -> 133, resume 7 -> 103, models 5 -> 37 (CPU on a busy machine 0.12 s -> 0.4 to 0.65 s). No heavy package is loaded.
  Either make the imports of the implementation local to functions by hand, or merge MOVES_THIN_COMMANDS into MOVES.
- state_input loads 95 modules (it needs render_run_state of ui.pausing, which terminal.approvals holds); `convo inspect state.json` pays.
- MOVES_THIN_COMMANDS was tried too: no message of move.py, every module imports, and these six command modules load 13 or 14.
- Not tried: ATTRIBUTES and PARAMETERS (move.py does not carry them out).

Shared decisions
- saying.say -> print_line, say_json -> print_json, note -> print_notice; failures.explain -> to_failure, tell -> print_failure, show_traceback ->
  print_debug_traceback; exits.EXITS -> EXIT_CODES.
- known.Where -> LookupOptions, known_of -> resolve_handles, Search -> HandleResolver (.one -> resolve, .owners -> fetch_owner_view: cli_a's
  CachingHandleResolver has the same two). engine's find is resolve_handle (to a session): two levels, two names.
- Flag groups end in Flags, option types in Option/Argument, arguments of one command in Options, Typer functions are X_command and
  X_Y_command (subcommands have explicit names; the root group takes names from COMMANDS, so function names do not show).
- verdicts.Said -> RequestedDecisions and resume.Decided -> ApprovalFlags (names.md has ApprovalFlags for Said): the group of flags is what
  is typed, Said is the same as tuples. Choice: CallDecision (run), StateCallDecision (document).
- ReplController (AtPrompt) implements terminal's ReplHost (ui.conversing.Look) and inherits ChatContext (Desk): its other attributes
  (switch, own, standing, check_takes, links, next, context, recent; _asked, _out, _holds, _reach, _hold, ...) follow terminal.py, cli_a.py.
- SchemaSqlOptions.after_migration: fields go to store_schema_sql(**options._asdict()), so stores.open.schema_sql and
  stores.postgres.schema.schema_sql change in the same step (they are in PARAMETERS here). tests/stores/postgres/test_migrating.py
  passes above=1. The option --above stays.

By hand
- cli.subject: delete `__all__` (it re-exports Where; lint.py, linting.py and repairing.py import Where from there) before the move, else F822.
- choosing.Wish is a TypeVar: its string becomes "ChoiceT".
- cli.linting: PAGES = "convo.inspection.linting" is a package name in a string: "convo.lint" after the move of pages/*.md.
- verdicts._iter_flags reads getattr(said, what) with approve, reject, edit, rerun, output: RequestedDecisions keeps these fields.
- ResumeRunFlags (Going): asdict() feeds RunFlags(**...): its fields keep the names of RunFlags and `model`. The same word `state` there.
- Typer parameters named handle, handles, state, fork, model, profile, provider are keys of the completers (suggesting.OFFERS): not renamed.
- Fields that are JSON keys only through literals; no dataclass of this part is dumped by asdict but Going and Parts.
- repairing._change: dict key "change" is JSON; only the parameter `one` changes. upcoming: locals by, cast, seen, said; racing: begins, took,
  ended; serving: heard, told: sweep by hand.
- `from convo.stores import open as stores` (storing.backup, recover), `from convo.cli import linting/serving/storing/resuming/going_on`,
  `from convo.engine import keeping`, `from convo.gateway import serving`, `from convo.ui import holdings/listing`: import the names instead.
- Docstrings name old functions: "as `look`", "as `made` and `put`", "as `cast_of`", "as `Running.open`", "as `keeping.rename`", and
  modules: "see `convo.ui.conversing.Look`", "`convo.cli.linting` does the rest".
- tests patch or name: failures.AT_THE_SHELL, watching.Painter, fetching.Progress, serving.Trouble, serving.logged, manual.PLACE,
  schema.SCHEMAS, standing.check_takes; test_app.py expects "convo.engine.glance" in a string.
- Failure.exit stays: ConvoError.exit is the same word, and to_failure copies it.

Merge and inline
- check_no_open_run (cli.changing) belongs beside load_open_run in chat.view_loader: talking, upcoming and at_prompt import it. Then
  repl_actions can join repl.
- next.COUNTS repeats the keys of upcoming.COUNTS: one tuple. inspect.PREFIXES repeats known.KINDS.
- states.print_states and forms.printed are one loop (join, page unless for programs): one function over rendered texts.
- resuming.PAUSED and running.PAUSED (both 3): one PAUSED_EXIT_CODE in cli.output beside EXIT_CODES; FINDINGS_EXIT_CODE too.
- choosing.ALL, runstate.deciding.ALL ("all"): one. subject.APPROVAL = runstate.run_items.APPROVAL: import it.
- going_on._as_before, upcoming._as_before, talking._as_before: three copies of "agents as before".
- resuming._kept and verdicts.kept_decisions, resuming._reason and verdicts._parts: the same rules over a document and over a run. verdicts.Said
  and the group resume.Decided have the same fields: let the group hold tuples.
- going_on.ENDS, run.state.ENDED: the first are stored words of AgentRun.status (one tuple beside AgentRun in stores.base).
- providers.as_error, failures.tell and the doctor write {code, message, hint}: one function.
- Inline: going_on._owner, _waiting, _decidable; shortening.shortening (only calls AutoCompaction); storing._session_record; failures._escape_controls
  (lazy import of safe); known._elsewhere into _one; watching._is_file; at_prompt methods of one line that only import a function.
- racing._run and storing.progress_line both write a progress line on stderr: one context manager in terminal, also for DownloadProgress.

A person decides
- cli.resume: `Going` / `Written` of resume.py and `Written` of resuming.py carry the same fields; one class would do once both are one module.
- render_handle prints from the store alone, HandleResolver asks endpoints: the REPL's /inspect differs from `convo inspect` on purpose.
- sessions `rm` is the command; the implementation is remove_sessions, the engine's function delete_sessions.
"""
