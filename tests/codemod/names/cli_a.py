"""Final names for convo/cli, first half (agent_options .. input)."""

NAMES = {
    # -- agents of a run ----------------------------------------------------------------------------
    "cli.run_flags": {
        "CONTEXT": "CONTEXT_OPTION",
        "SESSION_LIMIT": "SESSION_LIMIT_OPTION",
        "INPUT_FILTER": "INPUT_FILTER_OPTION",
        "NEST_HISTORY": "NEST_HISTORY_OPTION",
        "HISTORY_MAPPER": "HISTORY_MAPPER_OPTION",
        "HISTORY_MARKERS": "HISTORY_MARKERS_OPTION",
        "_option": "_format_option",
    },
    "cli.conduct": {
        "Cast": "AgentSetup",
        "cast_of": "load_agent_setup",
        "conduct_of": "load_run_config",
        "_has_models": "_has_agent_models",
        "_alike": "_without_agent_models",
        "_alike_inside": "_without_nested_agent_models",
        "_scratch": "_open_scratch_store",
        "_mapper": "_load_history_mapper",
        "_habits": "_load_handoff_defaults",
        "_note_unused": "_note_unused_history_flags",
        "_markers": "_parse_history_markers",
        "_values": "_load_context_values",
    },
    "cli.loading": {
        "EXAMPLE": "EXAMPLE_REFERENCE",
        "MEND": "FIX_FILE_HINT",
        "AGENT_LIKE": "AGENT_ATTRIBUTES",
        "Reference": "FileReference",
        "Asker": "ReferenceSource",
        "graph_of": "load_agent_graph",
        "foreign_agents_of": "load_sdk_agents",
        "function_of": "load_function",
        "made_by": "call_named_function",
        "loaded": "load_named_object",
        "reads_python": "is_python_reference",
        "reference": "parse_file_reference",
        "_parts": "_parse_reference",
        "_named": "_load_object",
        "_other": "_suggest_reference",
        "_first": "_suggest_agent",
        "run_file": "load_python_file",
        "theirs": "translate_user_code_errors",
        "_told": "_format_user_error",
        "_place": "_locate_error",
        "_frames": "_list_user_frames",
        "_shown": "_format_path",
        "_from_toml": "_load_toml_graph",
        "_tables": "_read_toml",
    },
    "cli.apart": {
        "Divided": "StdoutRouter",
        "divide": "route_user_output_to_stderr",
    },
    "cli.remembered_agents": {
        "HINT": "NAME_AGENTS_HINT",
        "CHAT_HINT": "NAME_AGENTS_OR_NONE_HINT",
        "AgentReference": "RememberedAgents",
        "agents_record": "make_agents_record",
        "agents_of_session": "load_session_agents",
        "agents_of_run": "load_run_agents",
        "_proof": "_compute_proof",
        "_key": "_load_user_key",
    },
    "cli.running": {
        "PAUSED": "PAUSED_EXIT_CODE",
        "Show": "RunPresenter",
        "pending": "pending_calls_to_json",
        "run_once": "run_single_message",
        "told": "present_run",
        "open_run": "make_open_run_error",
    },
    "cli.pauses": {
        "base_of": "load_base_state",
        "values_in": "load_saved_context_values",
        "Pauses": "PausedStateWriter",
        "_shared_names": "_list_shared_agent_names",
    },
    "cli.paused_files": {
        "MARK": "RUN_MARK_KEY",
        "run_in": "get_marked_run_id",
        "state_place": "state_file_path",
        "base_place": "base_state_file_path",
        "_list_place": "_named_files_list_path",
        "ended": "delete_state_files",
        "note_place": "record_named_file",
        "named": "list_named_files",
        "forget": "delete_run_files",
        "with_files": "list_runs_with_files",
        "_runs_in": "_list_run_ids",
        "_places": "_read_named_files",
        "_is_of": "_is_state_of_run",
    },
    # -- the application ----------------------------------------------------------------------------
    "cli.app": {
        "EXAMPLES": "ROOT_EXAMPLES",
        "Shell": "RootGroup",
        "SENTENCE": "MIN_MESSAGE_WORDS",
        "LONGEST": "MAX_HINT_CHARS",
        "meant": "suggest_command",
        "in_double_quotes": "quote_readably",
        "short": "shorten_command_name",
        "begin": "handle_root_options",
        "shell": "make_root_group",
        "run": "run_command_line",
        "perform": "invoke_command_line",
        "end": "report_failure",
        "wants_json": "is_json_requested",
        "open_what_was_closed": "open_closed_streams",
        "spell_out_what_cannot_be_encoded": "escape_unencodable_output",
        "let_go_of_output": "discard_output",
    },
    "cli.commands": {
        "Row": "CommandEntry",
        "Table": "CommandTable",
    },
    "cli.shape": {
        "Record": "HelpRecord",
        "NARROW": "NARROW_HELP_COLUMNS",
        "ABOUT": "EXAMPLE_INDENT",
        "EXAMPLE": "EXAMPLE_LINE",
        "Call": "RootOptions",
        "call_of": "get_root_options",
        "Command": "PlainHelpCommand",
        "Group": "PlainHelpGroup",
        "bare": "strip_braces",
        "sections": "collect_help_sections",
        "narrow": "get_narrow_help_width",
        "write_sections": "write_help_sections",
        "write_as_is": "write_help_examples",
        "narrowed": "wrap_example_line",
    },
    "cli.options": {
        "Text": "OptionalText",
        "Texts": "OptionalTexts",
        "OPTION": "OPTION_METADATA_KEY",
        "STDOUT": "STDOUT_ARGUMENT",
        "WHERE": "LOOKUP_PANEL",
        "Handle": "HandleArgument",
        "Remote": "RemoteOption",
        "Provider": "ProviderOption",
        "Database": "StoreOption",
        "AsJson": "JsonOption",
        "AsObject": "JsonObjectOption",
        "flag": "flag_option",
        "value": "value_option",
        "named_file": "parse_output_path",
        "spread": "expand_option_groups",
        "_is_group": "_is_option_group",
        "_gathered": "_build_option_group",
        "_options": "_iter_option_parameters",
    },
    # -- commands -----------------------------------------------------------------------------------
    "cli.approvals": {
        "approvals": "approvals_command",
        "Calls": "CallsArgument",
        "Of": "RunOption",
        "Always": "AlwaysOption",
        "list_": "approvals_list_command",
        "show": "approvals_show_command",
        "approve": "approvals_approve_command",
        "reject": "approvals_reject_command",
        "edit": "approvals_edit_command",
        "_decide": "_decide_from_options",
    },
    "cli.inbox": {
        "Config": "ConfigPath",
        "MANY": "MAX_PAUSED_RUNS",
        "Verdict": "InboxDecision",
        "Chosen": "SelectedCall",
        "list_waiting": "print_pending_calls",
        "show_waiting": "print_call_details",
        "decide": "decide_calls",
        "_keep": "_save_decisions",
        "_kept": "_iter_unchanged_decision_notes",
        "_event": "_build_decision",
        "_inbox": "_load_paused_runs",
        "_since": "_waiting_time_s",
        "_chosen": "_select_calls",
        "_named": "_match_calls",
        "_records": "_pending_calls_to_json",
        "_left_records": "_orphaned_calls_to_json",
        "_record": "_pending_call_to_json",
        "_tell": "_report_decisions",
        "_in_the_middle": "_format_orphaned_runs",
        "say": "_write_stdout_line",
        "note": "_write_stderr_line",
    },
    "cli.chat": {
        "chat": "chat_command",
        "HOTTEST": "MAX_TEMPERATURE",
        "Prompt": "PromptArgument",
        "Whose": "StrategyFlags",
        "Request": "RequestFlags",
        "Printed": "ChatOutputFlags",
    },
    "cli.talking": {
        "EXITS": "EXIT_CODE_BY_STATUS",
        "SLASHED": "SLASH_COMMAND_PATTERN",
        "talk": "run_chat",
        "_sources": "_read_chat_settings",
        "_cast": "_load_agents",
        "_as_before": "_with_previous_agents",
        "shown": "open_run_presenter",
        "first_message": "build_first_message",
        "converse": "run_interactive_chat",
        "ask_once": "run_single_turn",
        "at_the_prompt": "format_prompt_hint",
        "printed_line": "print_event_line",
        "ignored": "ignore_event",
        "outcome": "chat_outcome_to_json",
        "answered": "get_answer_items",
    },
    "cli.compact": {"compact": "compact_command"},
    "cli.compacting": {
        "PATIENCE_S": "LEASE_TIMEOUT_S",
        "PAUSE_S": "LEASE_RETRY_S",
        "Asked": "CompactCommandOptions",
        "compact_one": "run_compact",
        "_chat": "_open_chat_by_handle",
        "_right_to_write": "_write_lease",
        "_patiently": "_acquire_lease_with_retry",
        "_as_preview": "_preview_to_json",
        "as_object": "compact_result_to_json",
        "_figures": "_compaction_stats_to_json",
        "_there": "_check_file_exists",
        "_medium": "_stdout_medium",
    },
    "cli.completions": {
        "BASH": "BASH_SCRIPT",
        "ZSH": "ZSH_SCRIPT",
        "FISH": "FISH_SCRIPT",
        "POWERSHELL": "POWERSHELL_SCRIPT",
        "SCRIPTS": "COMPLETION_SCRIPTS",
        "FILES": "COMPLETION_FILE_NAMES",
        "script": "get_completion_script",
        "write_scripts": "write_completion_scripts",
        "candidates": "list_completions",
        "known_here": "list_local_completions",
        "answer": "print_completions",
    },
    "cli.suggesting": {
        "SESSIONS": "MAX_OFFERED_SESSIONS",
        "Candidates": "Completions",
        "handles": "complete_handle",
        "models": "complete_model",
        "profiles": "complete_profile",
        "providers": "complete_provider",
        "OFFERS": "COMPLETER_BY_PARAMETER",
        "settings_named": "complete_setting_key",
        "_written_down": "_list_priced_models",
        "_fitting": "_filter_by_prefix",
        "_sessions": "_load_recent_sessions",
        "_settings": "_load_settings_if_valid",
        "_config": "_get_config_path",
    },
    "cli.offering": {
        "SESSIONS": "MAX_OFFERED_SESSIONS",
        "Offering": "ReplCompleter",
    },
    "cli.config": {
        "config": "config_command",
        "key": "key_app",
        "names": "complete_key_argument",
        "Project": "ProjectOption",
        "Name": "KeyArgument",
        "Part": "KeyFilterArgument",
        "File": "ProjectFileArgument",
        "Provider": "KeyProviderArgument",
        "list_": "config_list_command",
        "set_": "config_set_command",
        "unset": "config_unset_command",
        "path": "config_path_command",
        "trust": "config_trust_command",
        "untrust": "config_untrust_command",
        "keys": "config_key_command",
        "set_key": "config_key_set_command",
        "unset_key": "config_key_unset_command",
    },
    "cli.configuring": {
        "Target": "SettingsTarget",
        "show": "print_settings",
        "put_value": "write_setting",
        "take_value": "remove_setting",
        "change": "edit_settings_file",
        "_note_untrusted": "_note_still_untrusted",
        "_alone_in": "_folder_lock",
        "_text": "_read_text",
        "_usable_sources": "_read_valid_inputs",
        "_check": "_check_settings_stay_valid",
        "trust": "trust_project_file",
        "untrust": "untrust_project_file",
        "list_trusted": "print_trusted_files",
        "_project_path": "_find_project_file",
        "_project_file": "_load_project_file",
        "_places": "_get_app_paths",
        "_place_elsewhere": "_get_remote_server",
        "_in_profile": "_qualify_with_profile",
        "_tell_stronger": "_note_stronger_source",
    },
    "cli.keeping_keys": {
        "FOLDER": "KEY_FOLDER_NAME",
        "put_key": "save_provider_key",
        "forget_key": "delete_provider_key",
        "_provider": "_find_provider",
        "_place": "_key_file_path",
        "_into_keyring": "_save_to_keyring",
        "_typed": "_read_key",
        "_asked": "_prompt_for_key",
        "_say": "_set_provider_setting",
        "_unsay": "_unset_provider_setting",
        "_key": "_make_provider_setting_key",
    },
    # -- what commands are opened with --------------------------------------------------------------
    "cli.wiring": {
        "store_of": "open_configured_store",
        "url_of": "get_store_url",
        "from_store": "read_from_store",
        "at_once": "run_sync",
        "endpoint_for": "endpoint_session",
        "endpoint_of": "open_chosen_endpoint",
        "chosen": "choose_session_model",
        "record_of": "make_recorded_endpoint",
        "asking_of": "make_request_options",
        "counts_here": "can_count_locally",
    },
    "cli.desk": {
        "FORGETS": "EPHEMERAL_STORE_TYPES",
        "Asked": "ChatOptions",
        "Out": "ChatOutput",
        "Desk": "ChatContext",
        "offered": "confirm_fork_of_busy_session",
        "there": "check_replay_file_exists",
        "called": "get_command_prefix",
        "ended": "get_turn_link",
    },
    "cli.forking": {
        "Forked": "ForkSource",
        "forked": "resolve_fork_source",
        "_response": "_resolve_response",
        "_earlier": "_find_response_at_turn",
        "_replayed": "_find_replay_session",
    },
    "cli.convert": {"convert": "convert_command"},
    "cli.converting": {
        "Asked": "ConvertOptions",
        "convert_one": "run_convert",
        "from_owner": "load_source_from_owner",
        "owner_of": "owner_endpoint",
        "answering": "choose_target_model",
        "scope_of": "get_endpoint_scope",
        "wished": "resolve_destination",
        "_made": "_make_session",
        "as_object": "conversion_to_json",
        "owned": "render_owner_change",
    },
    "cli.diff": {
        "diff": "diff_command",
        "HANDLE": "HANDLE_HELP",
        "WHERE": "COMPARISON_PANEL",
    },
    "cli.comparing": {
        "Sides": "DiffOptions",
        "differ": "run_diff",
        "Once": "CachingHandleResolver",
        "side": "load_diff_side",
        "named": "resolve_handle_with_turn",
        "both": "load_mirror_and_owner",
        "_own_rows": "_load_embedded_owner_view",
        "request": "load_sent_request",
        "body_in": "read_request_file",
        "_histories": "_print_history_diff",
        "_wire": "_print_request_diff",
    },
    # -- doctor -------------------------------------------------------------------------------------
    "cli.doctor": {"doctor": "doctor_command", "names": "complete_check_name"},
    "cli.checkup": {
        "MARGIN_S": "TIMEOUT_MARGIN_S",
        "Check": "DoctorCheck",
        "check": "make_doctor_check",
        "CHECKS": "DOCTOR_CHECKS",
        "ON_REQUEST": "OPT_IN_CHECKS",
        "examine": "run_doctor",
        "chosen": "select_doctor_checks",
        "examined": "run_doctor_checks",
        "_ended": "_get_finding",
        "_as_object": "_report_to_json",
    },
    "cli.looking": {
        "LIMIT_S": "CHECK_TIMEOUT_S",
        "EXTRAS": "PACKAGES_BY_EXTRA",
        "TRANSACTION_POOLER": "SUPABASE_POOLER_PORT",
        "Case": "DoctorContext",
        "case": "load_doctor_context",
        "_without_store": "_load_settings_without_store",
        "versions": "probe_versions",
        "settings": "probe_settings",
        "_named": "_format_source",
        "folders": "probe_folders",
        "terminal": "probe_terminal",
        "extras": "probe_extras",
        "store": "probe_store_facts",
        "within": "run_with_timeout",
        "pooler": "describe_supabase_pooler",
        "serve": "probe_serve",
        "_keys_in": "_count_api_keys",
        "seal": "probe_encryption_key",
    },
    "cli.looking_models": {
        "ENGINE": "LOCAL_ENGINE_PACKAGE",
        "AN_ALIAS": "ALIAS_SOURCE",
        "PATIENCE_S": "SERVER_TIMEOUT_S",
        "keys": "probe_keys",
        "_keys_of": "_iter_key_facts",
        "_unusable": "_describe_unusable_key",
        "_exposed": "_is_key_file_exposed",
        "model": "probe_model",
        "local": "probe_local_model",
        "ollama": "probe_ollama",
        "_in_use": "_iter_models_in_use",
        "network": "probe_network",
        "_reached": "_probe_servers",
        "_reach": "_probe_server",
    },
    "cli.judging": {
        "Versions": "VersionFacts",
        "versions": "diagnose_versions",
        "SettingSources": "SettingsFacts",
        "settings": "diagnose_settings",
        "Folders": "FolderFacts",
        "folders": "diagnose_folders",
        "Terminal": "TerminalFacts",
        "NARROW": "MIN_TERMINAL_COLUMNS",
        "terminal": "diagnose_terminal",
        "Extras": "ExtrasFacts",
        "extras": "diagnose_extras",
        "_pip": "_format_install_command",
        "Key": "ProviderKeyFacts",
        "keys": "diagnose_keys",
        "_again": "_format_set_key_hint",
        "model": "diagnose_model",
        "Local": "LocalModelFacts",
        "local": "diagnose_local_model",
        "Ollama": "OllamaFacts",
        "ollama": "diagnose_ollama",
        "Reached": "ServerFacts",
        "network": "diagnose_network",
        "Served": "ServeFacts",
        "serve": "diagnose_serve",
        "Seal": "EncryptionKeyFacts",
        "seal": "diagnose_encryption_key",
    },
    "cli.judging_store": {
        "Kept": "StoreFacts",
        "LITTLE_BYTES": "LOW_DISK_SPACE_BYTES",
        "NETWORKS": "NETWORK_FILESYSTEMS",
        "OLDEST_SERVER": "MIN_SERVER_VERSION",
        "EPHEMERAL": "EPHEMERAL_STORE_WARNINGS",
        "WITH_ITS_LOG": "BACKUP_HINT",
        "store": "diagnose_store",
        "_in_file": "_diagnose_sqlite",
        "_on_server": "_diagnose_postgres",
        "_version": "_format_server_version",
        "_grant": "_format_grants",
        "_migrate": "_format_migrate_command",
        "_same": "_format_store_option",
        "_ttl": "_format_ttl",
    },
    # -- files and pipes ----------------------------------------------------------------------------
    "cli.export": {
        "export": "export_command",
        "Form": "ExportFormat",
        "Written": "ExportFileFlags",
        "OfAgents": "ExportRunFlags",
        "Hidden": "RedactionFlags",
    },
    "cli.exporting": {
        "SUFFIXES": "FORMAT_BY_SUFFIX",
        "RUNSTATE": "RUNSTATE_FORMAT",
        "Asked": "ExportOptions",
        "export_one": "run_export",
        "check_free": "check_overwrite",
        "form_of": "resolve_export_format",
        "of_a_run": "check_run_export_options",
        "write": "write_export",
        "part_of": "select_exported_parts",
        "as_mirrored": "load_source_from_mirror",
        "not_itself": "check_not_source_file",
        "_html": "_render_html",
        "FORMS": "EXPORT_RENDERERS",
        "tell": "report_export",
    },
    "cli.exporting_runs": {
        "state_text": "render_session_run_state",
        "_state": "_build_session_run_state",
    },
    "cli.import_": {"import_": "import_command"},
    "cli.importing": {
        "Asked": "ImportOptions",
        "import_file": "run_import",
        "wanted": "select_documents",
        "answers": "choose_import_defaults",
        "tell": "report_import",
    },
    "cli.piped_input": {
        "DASH": "PIPE_ARGUMENT",
        "LARGEST": "MAX_PIPED_BYTES",
        "SILENCE_S": "SILENCE_NOTICE_S",
        "NO_CHARACTER": "UNDECODED_BYTE",
        "CHUNK": "PIPE_CHUNK_BYTES",
        "AS_TEXT": "NOT_TEXT_HINT",
        "STDIN": "STDIN_PATHS",
        "check": "check_message_words",
        "append_text": "join_message_texts",
        "piped_input": "read_piped_input",
        "_read": "_read_limited",
    },
}

ATTRIBUTES = {
    "cli.run_flags": {
        "RunFlags.beside": "list_agent_options",
        "RunFlags.check": "validate",
    },
    "cli.conduct": {
        "Cast.conduct": "run_config",
        "Cast.words": "agents_reference",
        "Cast.alike": "ignores_agent_models",
        "Cast.routed": "with_route",
        "Cast.asked_alike": "without_agent_models",
        "Cast.of_session": "with_agents_record",
        "Cast.flags": "format_options",
    },
    "cli.loading": {
        "Asker.beside": "folder",
        "Asker.naming": "describe",
        "Asker.to_write": "format_hint",
    },
    "cli.remembered_agents": {"AgentReference.file": "reference"},
    "cli.running": {
        "Show.running": "runner",
        "Show.links": "last_links",
        "Show.asked": "all_links",
        "Show._kept": "_saved_row",
        "Show._cast": "_setup",
        "Show._pauses": "_state_writer",
        "Show._desk": "_context",
        "Show._out": "_output",
        "Show._teller": "_progress",
        "Show.opened": "switch_chat",
        "Show.all_of": "show_events",
        "Show._keep": "_save_state",
        "Show._counted": "_collect_links",
        "Show._take": "_show_event",
        "Show.left": "report_exit",
        "Show.way_on": "resume_command",
        "Show._verdict": "_format_decision_options",
        "Show.say_outcome": "print_outcome",
        "Show.outcome": "outcome_to_json",
        "Show._words": "_get_output_text",
    },
    "cli.pauses": {
        "Pauses.base": "save_base_state",
        "Pauses.keep": "save_state",
        "Pauses._is_there": "_has_state_file",
        "Pauses._state": "_build_and_write_state",
        "Pauses._write": "_write_state_file",
        "Pauses._place": "_named_file",
        "Pauses._resumed": "_is_resumed",
        "Pauses._written": "_written_run_ids",
    },
    "cli.app": {"Shell.table": "entries"},
    "cli.inbox": {
        "Verdict.always": "is_sticky",
        "Verdict.edits": "edit_arguments",
        "Chosen.why": "reason",
    },
    "cli.chat": {
        "Whose.last": "continue_last",
        "Whose.store": "store_remotely",
        "Request.system": "instructions",
        "Request.attach": "attachments",
        "Request.schema": "schema_file",
        "Printed.check": "validate",
    },
    "cli.desk": {
        "Asked.last": "continue_last",
        "Asked.store": "store_remotely",
        "Asked.system": "instructions",
        "Asked.attach": "attachments",
        "Asked.schema": "schema_file",
        "Asked.run": "run_flags",
        "Asked.continues": "is_continued",
        "Asked.agents": "agents_reference",
        "Out.live": "is_streamed",
        "Out.plain": "is_plain",
        "Out.tell": "note_wrapped",
        "Desk._sources": "_inputs",
        "Desk._open_things": "_exit_stack",
        "Desk._asked": "_options",
        "Desk._out": "_output",
        "Desk._counts_here": "_can_count_locally",
        "Desk._shortening": "_auto_compaction",
        "Desk._holds": "_leases",
        "Desk.sheet": "get_answer_renderer",
        "Desk.folded": "get_reasoning_formatter",
        "Desk.prepare": "compact_if_needed",
        "Desk.receipt_of": "receipt_for_link",
        "Desk.way_back": "make_continue_command",
        "Desk.paused": "paused_runs_folder",
        "Desk.prompts": "prompt_history_file",
        "Desk.remembering": "with_agents_record",
        "Desk.agents_before": "load_previous_agents",
        "Desk._wanted": "_select_owner",
        "Desk._name": "_choose_session_name",
        "Desk._tell_new_file": "_note_new_file",
        "Desk._reach": "_connect",
        "Desk.route": "make_route",
        "Desk._asking": "_make_request_options",
        "Desk._announce": "_note_built_in_model",
        "Desk._hold": "_acquire_lease",
    },
    "cli.compacting": {"Asked.wish": "compaction"},
    "cli.offering": {
        "Offering.suggest": "complete",
        "Offering._of": "_list_offers",
        "Offering._models": "_list_model_offers",
    },
    "cli.configuring": {
        "Target.config": "config_path",
        "Target.project": "is_project",
        "Target.place": "path",
    },
    "cli.converting": {
        "Asked.to": "strategy",
        "Asked.name": "new_name",
    },
    "cli.comparing": {
        "Sides.wire": "compare_requests",
        "Sides.server": "compare_with_owner",
        "Once._search": "_resolver",
        "Once._found": "_views",
        "Once.one": "resolve",
        "Once.owners": "fetch_owner_view",
    },
    "cli.checkup": {"Check.about": "description"},
    "cli.looking": {
        "Case.found": "usable_settings",
        "Case.wrong": "error",
        "Case.whole": "complete_settings",
    },
    "cli.judging": {
        "SettingSources.places": "sources",
        "SettingSources.notice": "project_notice",
        "Terminal.out": "medium",
        "Terminal.named": "term_variable",
        "Extras.lacking": "missing_by_extra",
        "Extras.wanted": "extras_with_key",
        "Key.unusable": "problem",
        "Key.exposed": "is_exposed",
        "Local.engine": "has_engine",
        "Local.weights": "weights_file",
        "Ollama.wanted": "models_in_use",
        "Ollama.models": "available_models",
        "Ollama.failed": "error",
        "Ollama.chosen": "is_default",
        "Reached.failed": "error",
        "Served.serve": "settings",
        "Served.exposed": "is_exposed",
        "Served.lacking": "missing_packages",
        "Served.keys": "key_count",
        "Seal.kind": "store_type",
    },
    "cli.judging_store": {
        "Kept.origin": "source",
        "Kept.condition": "health",
        "Kept.via": "pooler",
    },
    "cli.export": {
        "Written.form": "export_format",
        "Written.force": "overwrite",
        "Hidden.pattern": "patterns",
    },
    "cli.exporting": {
        "Asked.form": "export_format",
        "Asked.force": "overwrite",
        "Asked.links": "include_links",
        "Asked.data": "include_data",
    },
    "cli.importing": {"Asked.only": "only_name"},
}

PARAMETERS = {
    "cli.conduct": {
        "cast_of.held": "described_context",
        "conduct_of.held": "described_context",
        "_mapper.said": "reference",
        "_markers.said": "markers",
        "_values.said": "reference",
        "_values.held": "described_context",
    },
    "cli.loading": {
        "made_by.given": "arguments",
        "Asker.naming.words": "reference_text",
        "Asker.to_write.words": "reference_text",
        "Asker.to_write.anything": "placeholder",
        "function_of.words": "reference_text",
        "reads_python.words": "reference_text",
        "reference.words": "reference_text",
        "_parts.words": "reference_text",
        "_parts.asker": "source",
        "_named.found": "reference",
        "_named.asker": "source",
        "_other.found": "reference",
        "_other.asker": "source",
        "_first.found": "reference",
        "_told.wrong": "error",
        "_place.wrong": "error",
        "_from_toml.found": "reference",
        "graph_of.words": "reference_text",
        "foreign_agents_of.words": "reference_text",
        "made_by.words": "reference_text",
        "loaded.words": "reference_text",
    },
    "cli.approvals": {
        "show.of": "run",
        "approve.of": "run",
        "reject.of": "run",
        "edit.of": "run",
        "_decide.of": "run",
        "_decide.always": "is_sticky",
        "_decide.edits": "edit_arguments",
    },
    "cli.inbox": {
        "show_waiting.of": "run",
        "decide.of": "run_filter",
        "_inbox.of": "run_filter",
        "_inbox.decided_too": "include_decided",
        "decide.verdict": "decision",
        "_keep.chosen": "selected",
        "_keep.verdict": "decision",
        "_kept.found": "paused_runs",
        "_kept.chosen": "selected",
        "_kept.verdict": "decision",
        "_event.one": "selected_call",
        "_event.verdict": "decision",
        "_chosen.found": "paused_runs",
        "_named.found": "paused_runs",
        "_records.paused": "paused_run",
        "_left_records.left": "orphaned",
        "_record.paused": "paused_run",
        "_tell.chosen": "selected",
        "_tell.left": "remaining",
        "_tell.verdict": "decision",
        "_in_the_middle.left": "orphaned_runs",
        "say.words": "text",
        "note.words": "text",
    },
    "cli.chat": {
        "chat.whose": "strategy",
        "chat.printed": "output",
    },
    "cli.talking": {
        "first_message.along": "attachment_parts",
        "converse.along": "attachments",
        "converse.show": "presenter",
        "talk.asked": "options",
        "talk.out": "output",
        "_sources.asked": "options",
        "_sources.out": "output",
        "_cast.asked": "options",
        "_as_before.desk": "context",
        "_as_before.asked": "options",
        "_as_before.out": "output",
        "shown.cast": "setup",
        "shown.desk": "context",
        "shown.out": "output",
        "shown.asked": "options",
        "converse.desk": "context",
        "converse.out": "output",
        "ask_once.said": "message",
        "ask_once.desk": "context",
        "ask_once.out": "output",
        "at_the_prompt.way_back": "continue_command",
    },
    "cli.export": {
        "export.written": "output",
        "export.hidden": "redaction",
    },
    "cli.importing": {
        "tell.before": "was_imported_before",
        "import_file.asked": "options",
        "wanted.asked": "options",
        "tell.made": "session",
    },
    "cli.configuring": {
        "_check.obeyed": "is_trusted",
        "_check.sources": "inputs",
        "show.part": "key_filter",
        "put_value.written": "value_text",
        "_text.place": "path",
        "_project_file.place": "path",
        "_place_elsewhere.one": "setting",
    },
    "cli.judging_store": {
        "_migrate.above": "above_schema",
        "store.kept": "facts",
        "_in_file.kept": "facts",
        "_on_server.kept": "facts",
        "_migrate.kept": "facts",
        "_same.kept": "facts",
    },
    "cli.piped_input": {
        "append_text.spoken": "typed",
    },
    "cli.run_flags": {
        "RunFlags.check.system": "instructions",
        "RunFlags.check.schema": "schema_file",
        "RunFlags.check.continues": "is_continued",
    },
    "cli.apart": {
        "Divided.__init__.out": "stdout",
    },
    "cli.remembered_agents": {
        "_key.make": "create",
    },
    "cli.running": {
        "Show.__init__.running": "runner",
        "Show.__init__.cast": "setup",
        "Show.__init__.pauses": "state_writer",
        "Show.__init__.desk": "context",
        "Show.__init__.out": "output",
        "Show.open.cast": "setup",
        "Show.open.desk": "context",
        "Show.open.out": "output",
        "Show.open.place": "state_file",
        "Show.say_outcome.before": "start_count",
        "Show.outcome.before": "start_count",
        "pending.running": "runner",
        "run_once.show": "presenter",
        "run_once.said": "message",
        "run_once.out": "output",
        "told.show": "presenter",
        "told.out": "output",
        "told.before": "start_count",
        "told.begin": "open_events",
        "open_run.show": "presenter",
    },
    "cli.pauses": {
        "Pauses.__init__.place": "named_file",
        "Pauses.__init__.resumed": "is_resumed",
        "Pauses.base.run": "run_id",
        "Pauses.keep.running": "runner",
        "Pauses._is_there.run": "run_id",
        "Pauses._state.running": "runner",
        "Pauses._state.named": "is_file_named",
        "Pauses._write.run": "run_id",
    },
    "cli.paused_files": {
        "state_place.run": "run_id",
        "base_place.run": "run_id",
        "_list_place.run": "run_id",
        "ended.run": "run_id",
        "note_place.run": "run_id",
        "note_place.place": "path",
        "_places.run": "run_id",
        "_is_of.place": "path",
        "_is_of.run": "run_id",
    },
    "cli.app": {
        "meant.table": "commands",
        "in_double_quotes.words": "text",
        "shell.table": "commands",
        "run.table": "commands",
        "perform.table": "commands",
    },
    "cli.shape": {
        "write_sections.found": "help_sections",
    },
    "cli.options": {
        "named_file.said": "argument",
        "_gathered.kind": "group_class",
        "_gathered.said": "values",
        "_options.kind": "group_class",
    },
    "cli.compacting": {
        "compact_one.asked": "options",
        "_chat.asked": "options",
        "_chat.sources": "inputs",
        "_right_to_write.patience_s": "timeout_s",
        "_patiently.patience_s": "timeout_s",
        "_as_preview.one": "prepared",
        "as_object.done": "result",
        "_figures.one": "prepared",
    },
    "cli.completions": {
        "candidates.table": "commands",
        "known_here.asked": "parameter",
        "answer.table": "commands",
    },
    "cli.suggesting": {
        "_fitting.found": "offers",
    },
    "cli.offering": {
        "Offering.suggest.before": "text_before_cursor",
        "Offering._of.kind": "place_kind",
    },
    "cli.wiring": {
        "at_once.work": "coroutine",
        "chosen.sources": "inputs",
    },
    "cli.desk": {
        "Out.note.words": "text",
        "Out.tell.words": "text",
        "Desk.__init__.sources": "inputs",
        "Desk.__init__.open_things": "exit_stack",
        "Desk.__init__.asked": "options",
        "Desk.__init__.out": "output",
        "Desk.receipt_of.parts": "calls",
        "Desk.remembering.cast": "setup",
        "Desk._wanted.begun": "fork_source",
    },
    "cli.forking": {
        "forked.named": "turn_handle",
        "_response.number": "turn",
        "_earlier.number": "turn",
        "_replayed.place": "path",
    },
    "cli.converting": {
        "convert_one.asked": "options",
        "from_owner.known": "view",
        "owner_of.known": "view",
        "answering.sources": "inputs",
        "_made.carried": "plan",
        "_made.wish": "destination",
        "as_object.carried": "plan",
        "as_object.made": "session",
        "owned.carried": "plan",
    },
    "cli.comparing": {
        "differ.sides": "options",
        "Once.__init__.search": "resolver",
        "side.search": "resolver",
        "named.search": "resolver",
        "both.search": "resolver",
        "request.search": "resolver",
    },
    "cli.checkup": {
        "check.about": "description",
        "check.look": "probe",
        "check.judge": "diagnose",
        "examined.case": "context",
    },
    "cli.looking": {
        "versions.case": "context",
        "settings.case": "context",
        "_named.origin": "source",
        "folders.case": "context",
        "terminal.case": "context",
        "extras.case": "context",
        "store.case": "context",
        "within.work": "coroutine",
        "within.place": "target",
        "serve.case": "context",
        "seal.case": "context",
    },
    "cli.looking_models": {
        "keys.case": "context",
        "_unusable.found": "found_key",
        "_exposed.found": "found_key",
        "model.case": "context",
        "local.case": "context",
        "ollama.case": "context",
        "network.case": "context",
        "_reached.wanted": "providers",
    },
    "cli.judging": {
        "versions.seen": "facts",
        "settings.seen": "facts",
        "folders.seen": "facts",
        "terminal.seen": "facts",
        "extras.seen": "facts",
        "_pip.wanted": "extra_names",
        "keys.found": "facts",
        "local.seen": "facts",
        "ollama.seen": "facts",
        "network.seen": "facts",
        "serve.seen": "facts",
        "seal.seen": "facts",
    },
    "cli.exporting": {
        "export_one.asked": "options",
        "check_free.asked": "options",
        "form_of.asked": "options",
        "of_a_run.asked": "options",
        "_export_run.asked": "options",
        "part_of.asked": "options",
        "as_mirrored.known": "view",
        "_html.asked": "options",
        "tell.asked": "options",
        "tell.hidden": "redactions",
    },
}

DOCS = {
    "cli.run_options": """Options of agent runs, shared by `convo chat`, `convo resume` and `convo next`.

Apart from `agent_options`, which loads what they name: a chat without agents imports nothing of that.
""",
    "cli.agent_options": """Agents and run settings named on the command line.

Loads FILE.py:NAME and FILE.toml before a store is opened or a model is called, so that a mistake in
the user's file changes nothing. The file runs once a process; what it prints goes to stderr.

The agents of a session are remembered with its runs as an absolute path with an HMAC, whose key is in
this user's data folder and never in the store: a path from elsewhere is refused, never imported.
""",
    "cli.agent_run": """Agent runs of a chat: show events, pause, report how the run ended.

A paused run is in the store. Its state file is a copy for another machine or the Agents SDK; once
written it is rewritten however the run ends, because an older file would run a tool again elsewhere.
""",
    "cli.paused_files": """Files of paused runs in convo's data folder.

run_....json is the state of a paused run, run_....base.json the state that an imported run continued
from, named/run_... the list of files that the user named for the run. All of them are deleted with the
session; the files that the user named stay and are reported.
""",
    "cli.app": """The `convo` command line: command table, option groups, help, errors and exit codes.

Only the module of the requested command is imported. Every exception becomes two lines on stderr, or
JSON on stdout, and an exit code; a closed pipe is silent. Help is plain text, without rich.
A command takes groups of options as frozen dataclasses; `expand_option_groups` shows them to Typer.
""",
    "cli.approvals": """`convo approvals`: list and decide the pending calls of paused runs.

Needs the store and no agents: a decision changes the stored run, under the session's write lease.
Nothing runs until the run is resumed.
""",
    "cli.chat": """`convo chat`: one turn, or an interactive chat.

Options come in four groups: strategy, request, agent runs, output.
""",
    "cli.compact": """`convo compact`: replace a history with a shorter one.

The write lease is taken only to apply the result. A chat may go on meanwhile; its new items are kept
after the compacted ones.
""",
    "cli.completion": """Shell completion: the scripts, and the candidates for a command line.

The scripts know no command. On Tab they run `convo` with _CONVO_COMPLETE set, the words so far, and
last the word under the cursor after "=". Output: one candidate a line, its help after a tab; no output
means file names. No network is used, and an error gives no candidates.
""",
    "cli.prompt_completion": """Tab completion at the prompt of a chat: commands, models, handles and files.

Only what is known locally is offered; no server is asked.
""",
    "cli.config": """`convo config`: show and change settings, trust project files, store provider keys.

A change that makes valid settings invalid is refused and the file stays as it was. Where they were
invalid before, only the new value is checked. A key is typed without echo or piped, and never printed.
""",
    "cli.deps": """Stores, endpoints and model choices for commands, opened from the settings.

Imports are made inside the functions: most commands need only the store.
""",
    "cli.context": """What a chat needs: store, endpoint, model, write lease.

The session record is found before the model is chosen, because it says at which endpoint a handle
lives. Nothing is sent or stored before this process holds the write lease.
""",
    "cli.convert": """`convo convert`: copy a conversation to another strategy.

The source is not changed and no model is called. A source that a server stores is read there; of the
targets only `conversation` calls an endpoint at once.
""",
    "cli.diff": """`convo diff`: compare two histories, or two requests as they were sent.

A side is a history, a request, or what the server has; each handle is resolved once.
""",
    "cli.doctor": """`convo doctor`: check the installation and suggest fixes.

A check is a probe, with effects and a time limit, and a pure diagnosis of the facts it returns
(`doctor_checks`). All checks run at once. Nothing is changed, and facts contain no secrets.
""",
    "cli.doctor_checks": """Diagnoses of `convo doctor`: pure functions from facts to a finding.

Facts contain no secrets: the name of a variable and never its value, a URL without its password.
The first problem is reported, with one next step.
""",
    "cli.export": """`convo export`: write a conversation as replay file, JSONL, Markdown, HTML or RunState.

A mirrored conversation is written as the local record has it, without a request; an unknown handle is
read from its endpoint.
""",
    "cli.run_state_export": """`convo export --format runstate`: an agent run as RunState JSON.

A stored run has only the names of its agents, so --agent is needed. Members of an imported state that
convo does not model are read from the state file that was saved with the run.
""",
    "cli.import_": """`convo import`: store the conversations of a file as sessions.

All are parsed before the first is stored. Conversations imported before are skipped, so that an
interrupted import can be repeated.
""",
    "cli.input": """Piped input: text on stdin that becomes part of a message.

A pipe or a regular file follows the words of the prompt after an empty line; "-" puts it elsewhere.
A terminal or a device such as /dev/null is never read. A socket is read only when data is ready or its
other end is closed, because programs pass one down without meaning it.
""",
}

MOVES = {
    # run_flags is imported by chat, next and resume before it is known whether there are agents: merged with conduct and
    # loading, every plain chat would import agents, handoffs, run and the SDK adapter.
    "cli.run_options": ["cli.run_flags"],
    "cli.agent_options": ["cli.conduct", "cli.loading", "cli.apart", "cli.remembered_agents"],
    # `sessions rm` and `store prune` need the files and not the runner: records and storing import paused_files alone.
    "cli.agent_run": ["cli.running", "cli.pauses"],
    "cli.paused_files": ["cli.paused_files"],
    # wiring serves 20 modules (every Tab, inspect, sessions); desk imports the chat engine and is used by chat and resume only.
    "cli.deps": ["cli.wiring"],
    "cli.context": ["cli.desk", "cli.forking"],
    # exporting_runs imports agents and the runner: 256 modules instead of 151 for every `convo export` (top-level imports, counted).
    "cli.export": ["cli.exporting"],
    "cli.run_state_export": ["cli.exporting_runs"],
    # Nothing is shared: shell completion needs Typer's internals, prompt completion the slash commands of terminal.
    # On every Tab the second would be imported for nothing; merged, two COMMANDS tables clash.
    "cli.completion": ["cli.completions", "cli.suggesting"],
    "cli.prompt_completion": ["cli.offering"],
}

NOTES = """
Shared decisions
- Desk -> ChatContext, Asked(desk) -> ChatOptions, Out -> ChatOutput, Cast -> AgentSetup (Cast.conduct -> run_config), Show -> RunPresenter,
  Pauses -> PausedStateWriter, wiring.store_of -> open_configured_store, from_store -> read_from_store, at_once -> run_sync,
  endpoint_for (context manager) -> endpoint_session, endpoint_of -> open_chosen_endpoint (not make_endpoint: the caller must close it).
- Command functions are X_command and X_Y_command, as in cli_b. Implementations are run_X: run_chat, run_compact, run_convert, run_diff,
  run_doctor, run_export, run_import; beside them core has run_compaction and run_race.
- Flag groups of Typer end in Flags, option types in Option or Argument, arguments of one command in Options.
- core has CompactionOptions (mode, focus, keep), so the arguments of `convo compact` are CompactCommandOptions.

Subclasses and protocols: the attributes must change together
- AtPrompt (cli_b) inherits Desk: _sources, _open_things, _asked, _out, _counts_here, _holds, _reach, _hold, _tell_new_file, prepare, ...
  The renamer must treat subclasses; terminal names Look.prepare -> compact_if_needed, as here. Desk.receipt and Show.receipt stay.
- Show implements ui.runs.Shown (terminal): running -> runner, all_of -> show_events, opened -> switch_chat, left -> report_exit.
- Offering.suggest -> complete, as AtPrompt.suggest in cli_b; the type is ui.completing.Suggest.
- Once has the two methods of known.Search: resolve, fetch_owner_view, as in cli_b.

Names that are strings or reflection, and stay
- StrategyFlags (chat.Whose): fields replay, session, conversation, chain are read by getattr(self, strategy).
- ExportOptions: fields agent, context, schema are read by getattr(asked, name) and become --agent, --context, --schema in an error.
- Typer parameter names handle, handles, a, b, state, fork, model, profile, provider are the keys of COMPLETER_BY_PARAMETER; the fields and
  parameters of these names are not renamed. All other options have explicit names on the command line.
- dataclasses.replace(cast, conduct=..., alike=...), NamedTuple._replace(models=..., failed=..., chosen=...) and _replace(files=...) take
  field names as keywords: a renamer by attribute must cover them (mypy reports those that it missed).
- Row.module holds import paths as strings ("convo.cli.chat"): unchanged by this plan.
- `python -m convo.cli.completions FOLDER` is documented in that module: it becomes `python -m convo.cli.completion`; grep for it in
  the README, CI and tests. tests/test_house.py names convo.cli.checkup as a string.
- loading._frames drops frames of its own __file__: right also after the merge.
- `__main__.py` imports convo.cli.app.run and completions.answer inside functions.

After the merge, by hand
- `from convo.cli import configuring` in config.trust and `judging.x`, `looking.x` in checkup are module attributes: in cli.config and in
  cli.doctor they become plain names (run_doctor: from convo.cli import doctor_checks, or names).
- `from convo.cli.configuring import untrust as forget` and every "import inside the command" that points to the same module go away.
- Start-up: a thin command module loads about 35 modules of ours, merged with its implementation 52 to 162 (counted on top-level imports:
  chat 54 -> 143, approvals 35 -> 162, compact 65 -> 131, convert 49 -> 148, diff 35 -> 129, doctor 35 -> 70, export 35 -> 151,
  import 35 -> 151, config 35 -> 52). `--help`, a usage error and every Tab after a command's name pay for that. Keep the imports of the
  implementation inside functions after the merge (that moves many into functions), or leave the command modules thin: a person decides
  with tests.bench.startup. MOVES here only separates what even a run of the command does not need.
- Importing both pathlib.Path and our Path does not occur in this part. cli.resume (cli_b) imports two edit_arguments: ui.rewriting
  and runstate.editing; one needs LOCAL.

Merge and inline
- inbox.say and inbox.note (-> _write_stdout_line, _write_stderr_line) copy cli.saying; note there redacts passwords in URLs too. Use
  saying's: that changes only what a URL with a password shows.
- compacting._there and desk.there are one check with two hints; compacting._medium is used once, elsewhere the call is written out.
- compacting._right_to_write -> _patiently is a one-caller hop. `async with ...: pass` is a probe: call it check_writable_now.
- talking._cast, .shown, ._as_before and going_on._as_before, upcoming._as_before: three copies of "agents as before"; one function over
  RememberedAgents. talking.outcome and Show.outcome build one JSON object twice: the keys belong together.
- pauses.values_in and conduct._values both read context values; conduct_of is used by cast_of alone: inline.
- config.names, doctor.names and cli_b's schema.names are hops that keep imports lazy: keep.
- doctor: fifteen pairs probe/diagnose registered in one table; a class per check is not needed.
- PATIENCE_S, LIMIT_S, MARGIN_S were three waiting times of doctor: SERVER_TIMEOUT_S, CHECK_TIMEOUT_S, TIMEOUT_MARGIN_S.
- desk.FORGETS and judging_store.EPHEMERAL list the same two store types; config.sections could own them.
- Desk has two phases (before and after open): seven `assert self._settings`. open() could return an OpenedChat with settings.

A person decides
- `convo config key`: "put away" is "store a key"; texts are not part of this table.
- Show.report_exit returns the exit code and also saves and prints; splitting it is a change of behaviour order, so left.
"""
