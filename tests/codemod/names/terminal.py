"""Final names for ui (new: terminal)."""

NAMES = {
    "ui.along": {
        "MENTION": "FILE_MENTION",
        "TRAILING": "TRAILING_PUNCTUATION",
        "mentioned": "find_mentioned_files",
        "parts_of": "load_mentioned_files",
        "is_there": "is_existing_file",
        "said_of": "format_attachment",
        "_size": "_format_attachment_size",
        "attach": "handle_attach",
        "detach": "handle_detach",
        "split": "split_file_names",
    },
    "ui.answer": {
        "CONTROLS": "CONTROL_CHARS",
        "INVISIBLE": "INVISIBLE_CHARS",
        "OBEYED": "CONTROL_CHAR",
        "UNSEEN": "UNSAFE_CHAR",
        "SILENT": "UNANNOUNCED_TYPES",
        "PIECES": "TEXT_DELTA_EVENTS",
        "ENDS": "ANSWER_END_EVENTS",
        "Fold": "FormatReasoning",
        "Sheet": "AnswerRenderer",
        "Printer": "AnswerPrinter",
        "announced": "describe_item",
        "safe": "escape_control_chars",
        "spelled": "escape_char_match",
    },
    "ui.answering": {
        "Result": "WorkResult",
        "watched": "consume_interruptibly",
        "waited": "run_interruptibly",
        "_run": "_consume",
    },
    "ui.asking": {
        "UNITS": "DURATION_UNITS",
        "Paused": "PausedRun",
        "one_call": "render_pending_call",
        "listed": "render_paused_runs",
        "ago": "format_duration",
        "_tool": "_tool_cell",
        "_facts": "_call_rows",
    },
    "ui.asking_with": {
        "NONE": "NO_INSTRUCTIONS",
        "system": "handle_system",
        "tools": "handle_tools",
        "described": "list_request_tools",
        "first_line": "get_first_line",
        "usage": "handle_usage",
        "cost": "handle_cost",
    },
    "ui.bar": {
        "BETWEEN": "PART_SEPARATOR",
        "LEAST": "MIN_SHOWN_SHARE",
        "Standing": "StatusLineState",
        "Bar": "StatusLine",
        "line": "format_status_line",
        "_shorter": "_iter_variants",
        "SHORT": "SHORT_OWNER_COLUMNS",
        "LEAST_OWNER": "MIN_OWNER_COLUMNS",
        "_filled": "_format_used_share",
        "_window": "_format_used_window",
        "share": "format_share",
    },
    "ui.chart": {
        "SIGNS": "CELL_CHARS",
        "LONGEST": "MAX_BAR_CELLS",
        "SHORTEST": "MIN_BAR_CELLS",
        "HEAD": "CHART_HEADING",
        "chart": "token_chart_lines",
        "_figures": "_chart_columns",
        "_room": "_bar_width",
        "_bars": "_render_bars",
        "_legend": "_chart_legend",
    },
    "ui.coming": {
        "END": "HEREDOC_END",
        "SPREAD": "MAX_INDENTED_ITEMS",
        "screen": "render_next_request",
        "where": "format_request_target",
        "curl": "build_curl_command",
        "_pretty": "_format_request_body",
        "_header": "_format_header",
        "_before": "_prepended_lines",
    },
    "ui.commands": {
        "Command": "SlashCommand",
        "MODEL": "MODEL_ARGUMENT",
        "HANDLE": "HANDLE_ARGUMENT",
        "OWNER": "OWNER_ARGUMENT",
        "help_": "handle_help",
        "exit_": "handle_exit",
        "status": "handle_status",
        "next_": "handle_next",
        "context": "handle_context",
        "inspect": "handle_inspect",
        "model": "handle_model",
        "owner": "handle_owner",
        "compact": "handle_compact",
        "retry": "handle_retry",
        "stop": "handle_stop",
        "COMMANDS": "SLASH_COMMANDS",
        "ALIASES": "SLASH_COMMAND_ALIASES",
        "taken": "get_argument_kind",
        "understood": "parse_slash_command",
        "obey": "dispatch_command",
    },
    "ui.compacted": {
        "MOST_DIGITS": "MAX_COUNT_DIGITS",
        "HOW": "COMPACTION_METHOD_TEXTS",
        "result": "render_compaction",
        "one_line": "format_compaction",
        "wished": "parse_compact_arguments",
        "_number": "_parse_turn_count",
        "preview": "render_compaction_preview",
        "taken": "format_token_reduction",
        "back": "format_old_history_command",
        "_rows": "_compaction_rows",
        "_made": "_prepared_rows",
        "_shown": "_replacement_lines",
    },
    "ui.completing": {
        "FILE": "FILE_ARGUMENT",
        "COMMAND": "COMMAND_NAME",
        "MOST": "MAX_FILE_SUGGESTIONS",
        "Place": "CompletionTarget",
        "Offer": "Suggestion",
        "Suggest": "SuggestCompletions",
        "place": "find_completion_target",
        "_last_word": "_last_word_start",
        "files": "suggest_files",
        "_named": "_file_suggestions",
        "fitting": "filter_suggestions",
    },
    "ui.conversing": {
        "AFTER_PROMPT_S": "WARM_UP_DELAY_S",
        "AT_THE_PROMPT": "HINTS_IN_REPL",
        "Look": "ReplHost",
        "Conversing": "Repl",
        "is_command": "is_slash_command",
        "message": "unescape_slash",
    },
    "ui.converted": {
        "NAMED": "MAX_NAMED_POSITIONS",
        "report": "render_losses",
        "places": "format_positions",
        "result": "render_conversion",
        "facts": "new_session_rows",
    },
    "ui.copying": {
        "MOST": "MAX_OSC52_BYTES",
        "PATIENCE_S": "CLIPBOARD_TIMEOUT_S",
        "PROGRAMS": "CLIPBOARD_PROGRAMS",
        "FENCE": "CODE_BLOCK",
        "copy": "handle_copy",
        "last_block": "find_last_code_block",
        "osc52": "build_osc52_sequence",
        "handed_on": "copy_with_programs",
        "_took": "_run_clipboard_program",
    },
    "ui.deciding": {
        "Ask": "AskUser",
        "Say": "PrintMessage",
        "LEAVE": "LEAVE_CHOICE",
        "ABORT": "ABORT_CHOICE",
        "WORDS": "CHOICE_SYNONYMS",
        "USAGE": "CHOICE_USAGE",
        "CHOICES": "CALL_CHOICES",
        "HOSTED": "HOSTED_CALL_CHOICES",
        "UNKNOWN": "UNKNOWN_OUTCOME_CHOICES",
        "settle": "ask_for_decisions",
        "_decided": "_ask_for_decision",
        "understood": "parse_choice",
        "_event": "_make_decision_event",
        "_edited": "_run_editor",
        "_not_ours": "_ignore_interrupt",
    },
    "ui.differing": {
        "ROOM": "DEFAULT_SIDE_COLUMNS",
        "MARKS": "DIFF_MARKS",
        "STYLES": "DIFF_STYLES",
        "RUN": "MAX_EQUAL_ITEMS_SHOWN",
        "Side": "DiffSide",
        "histories": "render_history_diff",
        "requests": "render_request_diff",
        "_side": "_format_side",
        "_where": "_describe_difference",
        "_sum": "_diff_counts",
        "_beside": "_side_by_side_lines",
        "_runs": "_group_by_status",
        "_line": "_format_pair",
        "_item": "_format_item",
        "_requests": "_request_rows",
        "_cache": "_cache_rows",
    },
    "ui.earlier": {
        "TURNS": "PREVIEW_TURNS",
        "LINES": "MAX_PREVIEW_LINES",
        "NO_WIDTH": "PREVIEW_COLUMNS",
        "last_turns": "last_turn_lines",
        "_message": "_message_lines",
        "_words": "_displayed_text",
    },
    "ui.editor": {
        "ALONE_S": "ESCAPE_TIMEOUT_S",
        "MENU": "MAX_MENU_ROWS",
        "STYLE": "PROMPT_STYLE",
        "Editor": "LineEditor",
        "Session": "EditorSession",
        "Later": "TimerSlot",
        "Screen": "EditorOutput",
        "screen": "make_editor_output",
        "as_characters": "replace_surrogates",
    },
    "ui.editor_history": {
        "RECENT": "MAX_HISTORY_BYTES",
        "BEGINS": "ENTRY_START",
        "Remembered": "PromptHistory",
        "catch_up": "reload_if_stale",
        "entry": "format_history_entry",
        "entries": "parse_history_entries",
        "remembered": "open_prompt_history",
    },
    "ui.editor_input": {
        "BREAKS": "LINE_BREAK_KEYS",
        "Keyboard": "PasteDetectingInput",
        "as_paste": "merge_paste",
    },
    "ui.editor_keys": {
        "AT_PROMPT": "PROMPT_HAS_FOCUS",
        "AGAIN": "EDIT_COMMAND",
        "nothing_typed": "is_prompt_empty",
        "keys": "build_key_bindings",
        "send": "accept_line",
        "break_line": "insert_newline",
        "slash": "insert_slash",
        "last_message": "edit_last_message",
        "search": "search_history",
        "leave_search": "exit_search",
        "edit": "open_editor",
        "stop": "interrupt_prompt",
    },
    "ui.editor_words": {
        "Completing": "EditorCompleter",
    },
    "ui.elsewhere": {
        "CLEARED": "CLEAR_SCREEN",
        "new": "handle_new",
        "clear": "handle_clear",
        "resume": "handle_resume",
        "_leave": "_switch_chat",
        "rename": "handle_rename",
        "export": "handle_export",
    },
    "ui.findings": {
        "Level": "CheckLevel",
        "STYLES": "LEVEL_STYLES",
        "Finding": "CheckResult",
        "Report": "CheckReport",
        "ok": "make_ok_result",
        "warning": "make_warning_result",
        "fault": "make_error_result",
        "screen": "render_checks",
        "summary": "summarize_checks",
    },
    "ui.going_back": {
        "EDITED": "EDIT_PROMPT",
        "undo": "handle_undo",
        "rewind": "handle_rewind",
        "redo": "handle_redo",
        "edit": "handle_edit",
        "fork": "handle_fork",
        "_number": "_parse_turn_number",
        "_tell": "_report_move",
    },
    "ui.guide": {
        "KEYS": "KEY_HELP",
        "NARROW": "MIN_TWO_COLUMN_WIDTH",
        "INDENT": "HELP_INDENT",
        "guide": "render_help",
        "_called": "_format_aliases",
    },
    "ui.holdings": {
        "UNITS": "SIZE_UNITS",
        "STEP": "SIZE_UNIT_FACTOR",
        "GO_FIRST": "KIND_DROP_ORDER",
        "listed": "render_tenant_stats",
        "pruned": "render_prune_results",
        "size": "format_bytes",
        "_at": "_format_optional_time",
    },
    "ui.inspecting": {
        "NO_CHART": "NO_CHART_TEXT",
        "screen": "render_conversation",
        "charted": "render_token_chart",
        "transcript": "render_path_items",
        "whole": "render_item",
        "_facts": "_conversation_rows",
        "_bills": "_usage_rows",
        "_head": "_format_head",
        "_go_on": "_continue_command",
        "_listed": "_item_lines",
        "label": "format_item_label",
        "_label": "_cached_item_label",
    },
    "ui.known_models": {
        "UNKNOWN": "UNKNOWN_VALUE",
        "names": "list_known_models",
        "table": "render_known_models",
        "as_rows": "known_models_to_json",
        "_row": "_known_model_to_json",
        "_usd": "_price_cell",
    },
    "ui.labelled": {
        "INDENT": "LABEL_INDENT",
        "MOST": "MAX_UNCONFIRMED_SHOWN",
        "PLAIN": "NO_LABEL_STYLES",
        "Line": "KeyValue",
        "labelled": "key_value_lines",
        "_wrapped": "_wrap_value",
        "waiting": "unconfirmed_rows",
        "counted": "format_count",
    },
    "ui.linting": {
        "STYLES": "SEVERITY_STYLES",
        "found": "render_lint_report",
        "mended": "render_repair",
        "_sum": "_summarize_findings",
        "_place": "_finding_location",
        "_at": "_change_location",
    },
    "ui.listing": {
        "Place": "SearchResult",
        "listed": "render_session_list",
        "record": "render_session",
        "found": "render_search_results",
        "when": "format_local_time",
        "_facts": "_session_rows",
    },
    "ui.medium": {
        "STYLES": "SGR_STYLES",
        "DRAWN": "BOX_CHARS",
        "BARS": "ASCII_BARS",
        "PLAIN": "ASCII_FALLBACKS",
        "NOT_ONE": "VARIABLE_WIDTH_CHAR",
        "Medium": "DisplayOptions",
        "medium_of": "detect_display",
        "drawn_on": "detect_display_without_color",
        "width": "text_width",
        "cut": "truncate_text",
        "wrapped": "wrap_line",
        "fitted": "wrap_text",
        "padded": "pad_text",
        "_columns": "_char_width",
        "_encodes": "_can_encode",
    },
    "ui.models": {
        "Entry": "ProviderStatus",
        "BuiltIn": "BuiltInModel",
        "screen": "render_models",
        "megabytes": "format_megabytes",
        "_default": "_default_model_rows",
        "_figures": "_model_data_rows",
        "_where": "_format_built_in",
        "_aliases": "_alias_rows",
        "_files": "_settings_file_rows",
        "_columns": "_provider_columns",
        "_set_up": "_setup_cell",
        "_key": "_key_cell",
    },
    "ui.open_run": {
        "stands": "describe_open_run",
        "PAUSED": "PAUSED_RUN_TEXT",
        "LEFT": "ORPHANED_RUN_TEXT",
        "way_on": "format_continue_command",
    },
    "ui.pager": {
        "LESS": "LESS_COMMAND",
        "NONE": "NO_PAGER_VALUES",
        "UNSEEN": "SGR_SEQUENCE",
        "show": "print_paged",
        "pager": "get_pager_command",
        "taller": "is_taller_than",
        "_is_watched": "_is_interactive",
        "_paged": "_run_pager",
        "_started": "_start_pager",
    },
    "ui.pausing": {
        "VERDICTS": "DECISION_NAMES",
        "paused": "render_paused_state",
        "lost": "loss_lines",
        "_facts": "_run_state_rows",
        "_owner": "_history_owner",
        "_columns": "_pending_columns",
        "_verdict": "_decision_cell",
        "_said": "_decision_name",
        "_decided": "_format_decision",
        "_arguments": "_arguments_cell",
    },
    "ui.prompt": {
        "NOT_DRAWN_ON": "DUMB_TERMINALS",
        "VI": "EDITING_VI",
        "PLAIN": "EDITING_PLAIN",
        "At": "PromptOptions",
        "Reader": "PromptReader",
        "terminal_reader": "make_prompt_reader",
        "Typewriter": "PlainReader",
        "typed": "read_plain_line",
        "on_screen": "write_to_terminal",
    },
    "ui.raced": {
        "UNKNOWN": "NO_VALUE",
        "LONGEST_BAR": "MAX_BYTE_BAR_COLUMNS",
        "BESIDE_BAR": "BYTE_BAR_LABEL_COLUMNS",
        "screen": "render_race",
        "progress": "format_race_progress",
        "_columns": "_race_columns",
        "_usd": "_format_usd",
        "_seconds": "_format_seconds",
        "_bars": "_byte_bars",
    },
    "ui.receipt": {
        "LEAST_USD": "MIN_SHOWN_USD",
        "receipt": "format_receipt",
        "total": "combine_links",
        "owner": "format_owner_handle",
        "_cost": "_total_cost_usd",
        "tokens": "format_token_counts",
        "spent": "format_cost",
        "_time": "_format_duration",
        "_id": "_shown_id",
    },
    "ui.rewriting": {
        "in_an_editor": "edit_arguments_in_editor",
        "pretty": "format_arguments",
    },
    "ui.runs": {
        "MOVE": "HEAD_MOVING_COMMANDS",
        "NOT_HERE": "COMMANDS_WITHOUT_AGENTS",
        "ON": "OPEN_RUN_HINT",
        "Shown": "RunView",
        "Runs": "AgentChat",
    },
    "ui.settings": {
        "IGNORED": "IGNORED_PREFIX",
        "table": "render_settings",
        "as_rows": "settings_to_json",
        "_as_row": "_setting_to_json",
        "shown": "format_setting_value",
        "_as_json": "_value_to_json",
    },
    "ui.sheet": {
        "MARKDOWN": "ANSWERS_MARKDOWN",
        "PLAIN": "ANSWERS_PLAIN",
        "CLICK_PROGRAMS": "LINK_PROGRAMS",
        "CLICK_TERMS": "LINK_TERMS",
        "CLICK_VARIABLES": "LINK_VARIABLES",
        "VTE_SINCE": "MIN_VTE_VERSION",
        "sheet_at": "make_answer_renderer",
        "Later": "LazyMarkdownRenderer",
        "clickable": "has_clickable_links",
    },
    "ui.shelling": {
        "MOST": "MAX_OUTPUT_CHARS",
        "ONCE": "SHELL_READ_BYTES",
        "STOPPED": "INTERRUPT_EXIT_CODES",
        "shell": "run_shell_line",
        "_run": "_run_uncaptured",
        "_kept": "_run_captured",
        "_begun": "_start_shell",
        "part": "make_output_part",
        "bounded": "shorten_output",
        "ended": "format_exit",
        "ignored": "ignore_signal",
    },
    "ui.signals": {
        "ENDING": "TERMINATION_SIGNALS",
        "SHELLS_ADD": "SIGNAL_EXIT_BASE",
        "UNHEARD": "MAX_QUEUED_SIGNALS",
        "leave": "apply_default_action",
        "orderly": "run_until_terminated",
    },
    "ui.spending": {
        "NOTHING": "NO_REQUESTS_TEXT",
        "usage": "format_session_usage",
        "cost": "format_session_cost",
        "_lines": "_usage_lines",
        "_figures": "_format_totals",
    },
    "ui.status": {
        "status": "format_status",
    },
    "ui.table": {
        "GAP": "COLUMN_GAP",
        "LEAST_WORDS": "MIN_LAST_COLUMN_WIDTH",
        "fitted": "fit_columns",
        "lines": "table_lines",
        "_line": "_format_row",
        "_leaving": "_drop_key",
        "_too_wide": "_is_too_wide",
    },
    "ui.telling": {
        "TOLD_OTHERWISE": "SENTENCE_ITEM_TYPES",
        "LONGEST": "MAX_SENTENCE_CHARS",
        "Teller": "RunPrinter",
        "sentences": "format_run_event",
        "waits": "format_pending_call",
        "one_line": "shorten_to_line",
        "as_words": "value_to_text",
    },
    "ui.thinking": {
        "NO_WIDTH": "REASONING_COLUMNS",
        "thought": "reasoning_text",
        "folded": "format_reasoning_line",
        "reasoning": "handle_reasoning",
        "_thoughts": "_last_turn_reasoning",
    },
    "ui.tree": {
        "SHORTEST_ID": "MIN_SHORT_ID_CHARS",
        "ROOMY": "WIDE_TERMINAL_COLUMNS",
        "UNKNOWN": "UNKNOWN_NUMBER",
        "MIXED": "MIXED_OWNERS_DROP_ORDER",
        "Drawn": "TreeRow",
        "table": "fit_link_table",
        "seen": "build_tree_rows",
        "marked": "tree_labels",
        "figure": "format_optional_number",
        "tree": "tree_lines",
        "short_ids": "shorten_ids",
        "_cut": "_shorten_id",
        "_columns": "_tree_columns",
        "_amounts": "_amount_columns",
        "_numbers": "_number_column",
        "_place": "_tree_prefix",
        "_session": "_session_cell",
        "_time": "_format_time",
        "_seconds": "_duration_cell",
        "_status": "_format_link_status",
        "_words": "_preview_cell",
    },
    "ui.unechoed": {
        "UNECHOED": "ECHO_FLAGS",
        "AS_TYPED": "NEWLINE_FLAGS",
        "AT_ONCE": "KEY_READ_BYTES",
        "unechoed": "disable_echo",
    },
    "ui.window": {
        "METER": "METER_COLUMNS",
        "BESIDE": "METER_LABEL_COLUMNS",
        "table": "context_table_lines",
        "together": "format_context_total",
        "meter": "context_meter_lines",
        "_counter": "_format_counter",
        "_figure": "_format_tokens",
        "_bar": "_meter_bar",
    },
    "ui.markdown.code": {
        "STYLES": "TOKEN_STYLES",
        "CLOSES": "COMMENT_ENDS",
        "ENDLESS": "EXCLUDED_LANGUAGES",
        "Ink": "LexerState",
        "ink": "make_lexer_state",
        "coloured": "highlight_line",
        "_opens_comment": "_has_open_comment",
        "_read": "_tokenize_line",
        "_spans": "_token_spans",
        "_style": "_token_style",
        "_lexer": "_find_lexer",
    },
    "ui.markdown.cutting": {
        "SPAN": "MAX_OPEN_MARK_CHARS",
        "LONG": "MAX_LINE_CHARS",
        "FULL": "MIN_PARAGRAPH_ROWS",
        "OPENS": "OPENING_MARK",
        "PLACE": "CUT_POINT",
        "RULE": "TABLE_RULE",
        "Cut": "CutResult",
        "cut": "cut_finished",
        "end_of_line": "continuation_prefix",
        "_before_the_last": "_cut_closed_blocks",
        "_of_the_last": "_cut_open_block",
        "_end": "_content_end",
        "_paragraph": "_cut_paragraph",
        "_place": "_find_cut_point",
        "_heads": "_table_head_chars",
        "_some": "_sample_points",
        "is_settled": "has_balanced_marks",
        "_means_the_same": "_is_unchanged_by_cut",
        "_said": "_inline_signature",
    },
    "ui.markdown.frames": {
        "LISTS": "LIST_NODE_TYPES",
        "CONTAINERS": "CONTAINER_NODE_TYPES",
        "BLANK": "BLANK_LINE",
        "QUOTE": "QUOTE_PREFIX",
        "ITEM": "LIST_ITEM_PREFIX",
        "INDENTED_CODE": "INDENTED_CODE_SPACES",
        "Frame": "OpenContainer",
        "stubs": "build_stub_lines",
        "prefix": "container_prefix",
        "inside": "strip_container_prefix",
        "frames_of": "find_open_containers",
        "_item": "_list_item_container",
        "closed": "close_list_item",
        "first_line": "first_line_index",
        "is_blank": "is_blank_line",
        "begins_with_stub": "has_leading_stub",
    },
    "ui.markdown.inlines": {
        "STYLES": "INLINE_STYLES",
        "CODE": "CODE_STYLE",
        "LINK": "LINK_STYLE",
        "DIM": "DIM_STYLE",
        "CLICKABLE": "CLICKABLE_SCHEMES",
        "ADDRESS": "ADDRESS_LIKE",
        "spans": "render_inline",
        "plain": "to_plain_text",
        "_Words": "_InlineRenderer",
        "_ticked": "_code_with_ticks",
        "_is_clickable": "_is_clickable_link",
        "_is_same": "_is_same_address",
    },
    "ui.markdown.page": {
        "FRAME_S": "FRAME_INTERVAL_S",
        "MARGIN": "RIGHT_MARGIN_COLUMNS",
        "NARROWEST": "MIN_COLUMNS",
        "Page": "MarkdownRenderer",
        "Often": "Throttle",
    },
    "ui.markdown.painting": {
        "HIGHEST": "MAX_REDRAWN_ROWS",
        "Painter": "RowPainter",
        "change": "build_screen_update",
    },
    "ui.markdown.parsing": {
        "DEEPEST": "MAX_NESTING",
        "CLOSES": "MATH_ENDS",
        "blocks": "parse_blocks",
        "inline": "parse_inline",
        "_reader": "_make_parser",
        "_math": "_math_rule",
        "_math_block": "_math_block_rule",
        "_line": "_source_line",
    },
    "ui.markdown.reading": {
        "GRAIN": "CHECK_INTERVAL_CHARS",
        "LARGE": "LARGE_OPEN_CHARS",
        "NOT_YET": "AMBIGUOUS_LINE",
        "FRAMES": "MAX_OPEN_CONTAINERS",
        "DEEP": "DEEP_PREFIX",
        "Reading": "MarkdownStream",
    },
    "ui.markdown.rendering": {
        "VERBATIM": "VERBATIM_NODE_TYPES",
        "LEAST": "MIN_LIST_COLUMNS",
        "RULE": "MAX_RULE_COLUMNS",
        "Prose": "CarriedParagraph",
        "Code": "CarriedCode",
        "Table": "CarriedTable",
        "Leaf": "CarriedBlock",
        "Carry": "RenderState",
        "Rendering": "BlockRenderer",
        "opened": "path_to_last_block",
        "is_closed": "is_closed_fence",
        "numbered": "number_list_items",
        "_inside": "_nodes_after_stub",
        "_counted": "_iter_item_numbers",
    },
    "ui.markdown.spans": {
        "MARK": "CUT_MARK",
        "NARROW": "TEXT_PIECE",
        "CLOSING": "NO_ROW_START_CHARS",
        "OTHER": "UNPRINTABLE_CHAR",
        "Paper": "MarkdownOptions",
        "Row": "StyledRow",
        "clean": "escape_decoded_text",
        "columns": "row_width",
        "drawn": "encode_row",
        "joined": "merge_spans",
        "wrapped": "wrap_spans",
        "pieces": "split_pieces",
        "broken": "break_spans",
        "_Filling": "_RowFiller",
        "_by_width": "_split_by_width",
        "_is_wide": "_is_wide_char",
        "_parts": "_split_to_fit",
        "_drawn": "_encode_span",
    },
    "ui.markdown.tables": {
        "Cell": "TableCell",
        "Line": "TableLine",
        "LEAST": "MIN_CELL_COLUMNS",
        "SETTLED": "LAYOUT_ROWS",
        "Form": "TableLayout",
        "form": "compute_table_layout",
        "head_rows": "render_table_head",
        "line_rows": "render_table_line",
        "_told": "_render_as_list",
        "_rows": "_render_cells",
        "_row": "_join_cells",
        "_widest": "_cell_width",
        "_shared": "_share_width",
    },
}

ATTRIBUTES = {
    "ui.answer": {
        "Sheet.say": "write",
        "Sheet.end": "finish",
        "Printer.take": "print_event",
        "Printer.end": "finish",
        "Printer.open_line": "has_open_line",
        "Printer._shown": "_shown_indexes",
        "Printer._part": "_current_part",
        "Printer._piece": "_print_delta",
        "Printer._item": "_print_item",
        "Printer._say": "_write",
        "Printer._sheet": "_renderer",
        "Printer._folded": "_format_reasoning",
        "Printer._silent": "_unannounced",
    },
    "ui.asking": {
        "Paused.run": "run_id",
        "Paused.session": "session_name",
        "Paused.since": "paused_s",
    },
    "ui.bar": {
        "Standing.tokens": "used_tokens",
        "Standing.window": "context_window",
        "Standing.along": "attachment_count",
        "Bar.standing": "state",
        "Bar.line": "render",
    },
    "ui.commands": {
        "Command.takes": "argument_kind",
    },
    "ui.completing": {
        "Place.word": "prefix",
        "Offer.word": "text",
        "Offer.about": "description",
    },
    "ui.conversing": {
        "Look.switch": "switch_model",
        "Look.own": "change_strategy",
        "Look.new": "open_new",
        "Look.resume": "open_existing",
        "Look.recent": "render_recent_sessions",
        "Look.standing": "load_status_line_state",
        "Look.check_takes": "check_input_supported",
        "Look.inspect": "render_handle",
        "Look.status": "render_status",
        "Look.next": "render_next_request",
        "Look.context": "render_context_usage",
        "Look.prepare": "compact_if_needed",
        "Conversing.leaving": "is_exiting",
        "Conversing.look": "host",
        "Conversing.heads": "undo_stack",
        "Conversing.runs": "agent_chat",
        "Conversing.along": "attachments",
        "Conversing.medium": "display",
        "Conversing._bar": "_status_line",
        "Conversing._sheet": "_renderer",
        "Conversing._folded": "_format_reasoning",
        "Conversing._reading": "_line_future",
        "Conversing._pressed": "_has_interrupt",
        "Conversing._escaped": "_has_escape",
        "Conversing._warm": "_warm_up",
        "Conversing._talk": "_read_loop",
        "Conversing._look_up": "_update_status_line",
        "Conversing.typed": "read_line",
        "Conversing._press": "_on_interrupt",
        "Conversing._escape": "_on_escape",
        "Conversing.answer": "show_answer",
        "Conversing.say": "print_message",
        "Conversing.show": "print_block",
        "Conversing.to_terminal": "send_control_sequence",
        "Conversing.note": "notify",
        "Conversing._carry_out": "_handle_line",
        "Conversing._tried": "_report_errors",
        "Conversing._ask": "_send_message",
        "Conversing._after": "_print_receipt",
    },
    "ui.editor": {
        "Editor.echoes": "has_echo",
        "Editor.pasted": "pasted_texts",
        "Editor._screen": "_output",
        "Editor._at": "_options",
        "Editor.line": "read_line",
        "Editor.listening": "watch_stop_key",
        "Editor.aside": "release_terminal",
        "Editor._with_bar": "_add_status_line",
        "Later.drop": "cancel",
        "Screen.leave_brackets": "end_bracketed_paste",
    },
    "ui.editor_history": {
        "Remembered.behind": "is_stale",
        "Remembered._now": "_file_size",
        "Remembered._place": "_path",
        "Remembered._size": "_loaded_size_bytes",
    },
    "ui.findings": {
        "Level.FAULT": "ERROR",
        "Finding.found": "message",
        "Finding.next": "hint",
        "Report.finding": "result",
    },
    "ui.listing": {
        "Place.at": "item_number",
        "Place.of": "item_count",
        "Place.who": "author",
    },
    "ui.medium": {
        "Medium.colour": "has_color",
        "Medium.boxes": "has_box_chars",
        "Medium.paint": "apply_style",
        "Medium.drawn": "translate_box_chars",
    },
    "ui.models": {
        "Entry.key": "key_status",
        "Entry.lacks": "setup_error",
        "Entry.failed": "list_error",
        "Entry.place": "key_location",
        "BuiltIn.size": "size_bytes",
    },
    "ui.prompt": {
        "At.history": "history_path",
        "At.words": "suggest",
        "At.bar": "render_status_line",
        "At.vi": "is_vi",
        "Reader.pasted": "pasted_texts",
        "Reader.echoes": "has_echo",
        "Reader.line": "read_line",
        "Reader.listening": "watch_stop_key",
        "Reader.aside": "release_terminal",
        "Typewriter.pasted": "pasted_texts",
        "Typewriter.echoes": "has_echo",
        "Typewriter.line": "read_line",
        "Typewriter.listening": "watch_stop_key",
        "Typewriter.aside": "release_terminal",
    },
    "ui.runs": {
        "Shown.running": "runner",
        "Shown.all_of": "show_events",
        "Shown.opened": "switch_chat",
        "Shown.left": "report_exit",
        "Runs.running": "runner",
        "Runs.tools": "list_tools",
        "Runs.begin": "resume_open_run",
        "Runs.say": "send",
        "Runs.again": "retry",
        "Runs.check": "check_command",
        "Runs._talk": "_repl",
        "Runs._show": "_view",
        "Runs._medium": "_display",
        "Runs._shown": "_show_run",
        "Runs._settled": "_ask_for_decisions",
    },
    "ui.sheet": {
        "Later.say": "write",
        "Later.end": "finish",
        "Later._page": "_renderer",
        "Later._made": "_make_renderer",
    },
    "ui.table": {
        "Column.head": "heading",
        "Column.right": "align_right",
        "Column.goes": "drop_order",
        "Column.same": "common_cell",
        "Column.room": "width",
        "Table.said": "common_cells",
    },
    "ui.telling": {
        "Teller.take": "print_event",
        "Teller._remember": "_record_last_message",
        "Teller._final": "_print_final_output",
        "Teller._last": "_last_text",
    },
    "ui.tree": {
        "Drawn.row": "link_row",
        "Drawn.was": "stats",
        "Drawn.id": "short_id",
        "Drawn.at": "is_head",
        "Drawn.first": "is_first",
    },
    "ui.markdown.code": {
        "Ink.closes": "comment_end",
    },
    "ui.markdown.cutting": {
        "Cut.carry": "state",
    },
    "ui.markdown.inlines": {
        "_Words.of": "render",
        "_Words._take": "_add_token",
        "_Words._say": "_add_text",
        "_Words._mark": "_toggle_style",
        "_Words._image": "_add_image",
        "_Words._said": "_spans",
        "_Words._paper": "_options",
    },
    "ui.markdown.page": {
        "Page.reading": "stream",
        "Page.say": "write",
        "Page.end": "finish",
        "Page._columns": "_get_columns",
        "Page._finished": "_finished_rows",
        "Page._often": "_throttle",
        "Page._shown": "_shown_chars",
        "Page._show": "_draw",
        "Page._drawn": "_encode_rows",
        "Page._fit": "_update_width",
        "Often.soon": "schedule",
        "Often.stop": "cancel",
        "Often._do": "_run",
        "Often._act": "_callback",
        "Often._last": "_last_run_at",
        "Often._gone": "_error",
        "Often._waiting": "_timer",
    },
    "ui.markdown.painting": {
        "Painter.show": "update",
        "Painter.forget": "leave_open_rows",
        "Painter._open": "_open_rows",
    },
    "ui.markdown.reading": {
        "Reading.paper": "options",
        "Reading.looked": "examined_chars",
        "Reading.take": "feed",
        "Reading.open": "render_open",
        "Reading.end": "finish",
        "Reading.size": "open_chars",
        "Reading._lines": "_complete_lines",
        "Reading._open": "_last_line",
        "Reading._carry": "_state",
        "Reading._begun": "_has_rows",
        "Reading._size": "_complete_chars",
        "Reading._due": "_next_check_chars",
        "Reading._next": "_next_cut_chars",
        "Reading._line": "_bounded_line",
        "Reading._within": "_check_partial_line",
        "Reading._look": "_cut_finished",
    },
    "ui.markdown.rendering": {
        "Code.ink": "lexer_state",
        "Code.skip": "skipped_lines",
        "Table.form": "layout",
        "Carry.frames": "containers",
        "Carry.gap": "has_gap",
        "Carry.leaf": "carried_block",
        "Rendering.leaf": "carried_block",
        "Rendering.numbers": "item_numbers",
        "Rendering.full": "full_row_count",
        "Rendering._paper": "_options",
        "Rendering._gap": "_has_gap",
        "Rendering._carried": "_initial_block",
        "Rendering._fresh": "_is_start",
        "Rendering._open": "_open_node",
        "Rendering._stop": "_stop_node",
        "Rendering._upto": "_max_chars",
        "Rendering.rows": "render",
        "Rendering._children": "_render_children",
        "Rendering._stopped": "_is_stop",
        "Rendering._gap_before": "_has_gap_before",
        "Rendering._block": "_render_block",
        "Rendering._leaf": "_render_leaf",
        "Rendering._item": "_render_list_item",
        "Rendering._quote": "_render_quote",
        "Rendering._marker": "_item_marker",
        "Rendering._paragraph": "_render_paragraph",
        "Rendering._verbatim": "_render_verbatim",
        "Rendering._edge": "_code_rule",
        "Rendering._table": "_render_table",
    },
    "ui.markdown.spans": {
        "Paper.colour": "has_color",
        "Paper.boxes": "has_box_chars",
        "Paper.links": "has_links",
        "Span.words": "text",
        "_Filling.take": "add",
        "_Filling.rows": "finish",
        "_Filling._room": "_max_width",
        "_Filling._filled": "_row_width",
        "_Filling._wide": "_word_width",
    },
    "ui.markdown.tables": {
        "Form.sides": "alignments",
    },
    "cli.at_prompt": {
        "AtPrompt.switch": "switch_model",
        "AtPrompt.own": "change_strategy",
        "AtPrompt.new": "open_new",
        "AtPrompt.resume": "open_existing",
        "AtPrompt.recent": "render_recent_sessions",
        "AtPrompt.standing": "load_status_line_state",
        "AtPrompt.check_takes": "check_input_supported",
        "AtPrompt.inspect": "render_handle",
        "AtPrompt.status": "render_status",
        "AtPrompt.next": "render_next_request",
        "AtPrompt.context": "render_context_usage",
    },
    "cli.desk": {
        "Desk.prepare": "compact_if_needed",
    },
    "cli.running": {
        "Show.running": "runner",
        "Show.all_of": "show_events",
        "Show.opened": "switch_chat",
        "Show.left": "report_exit",
    },
}

PARAMETERS = {
    "ui.answer": {
        "Printer.__init__.sheet": "renderer",
        "Printer.__init__.folded": "format_reasoning",
        "Printer.__init__.silent": "unannounced",
        "Sheet.say.words": "text",
        "Printer._say.words": "text",
        "safe.words": "text",
    },
    "ui.answering": {
        "watched.take": "on_event",
        "_run.take": "on_event",
    },
    "ui.asking": {
        "one_call.more": "extra_rows",
        "listed.paused": "runs",
        "one_call.medium": "display",
        "listed.medium": "display",
    },
    "ui.asking_with": {
        "described.offered": "tools",
        "system.talk": "repl",
        "system.words": "text",
        "tools.talk": "repl",
        "first_line.words": "text",
        "usage.talk": "repl",
        "cost.talk": "repl",
    },
    "ui.bar": {
        "line.standing": "state",
        "_shorter.standing": "state",
        "_filled.standing": "state",
        "_window.standing": "state",
    },
    "ui.coming": {
        "screen.coming": "request",
        "where.coming": "request",
        "curl.coming": "request",
        "_before.coming": "request",
        "screen.most": "max_prepended",
        "_before.most": "max_prepended",
        "screen.medium": "display",
        "_before.medium": "display",
    },
    "ui.compacted": {
        "result.done": "compaction",
        "one_line.done": "compaction",
        "_rows.done": "compaction",
        "preview.made": "prepared",
        "_made.made": "prepared",
        "_shown.made": "prepared",
        "back.old": "old_handle",
        "result.medium": "display",
        "wished.words": "text",
        "preview.medium": "display",
    },
    "ui.completing": {
        "place.taken": "get_argument_kind",
        "fitting.offers": "suggestions",
        "fitting.word": "prefix",
        "files.word": "prefix",
    },
    "ui.conversing": {
        "Conversing.__init__.look": "host",
        "Conversing.__init__.along": "attachments",
        "Conversing.__init__.bar": "status_line",
        "Conversing.__init__.sheet": "renderer",
        "Conversing.__init__.folded": "format_reasoning",
        "Look.next.words": "text",
        "Look.compact.words": "text",
        "Look.export.words": "text",
        "Conversing.say.words": "text",
        "Conversing.show.words": "text",
        "Conversing.note.words": "text",
        "Conversing._ask.words": "text",
    },
    "ui.converted": {
        "facts.items": "item_count",
        "facts.waiting": "unconfirmed_count",
        "report.medium": "display",
        "result.medium": "display",
    },
    "ui.deciding": {
        "settle.running": "runner",
        "_decided.running": "runner",
        "settle.say": "print_message",
        "_decided.say": "print_message",
        "_event.why": "detail",
        "settle.medium": "display",
        "_decided.medium": "display",
    },
    "ui.differing": {
        "histories.found": "diff",
        "requests.found": "diff",
        "_where.found": "diff",
        "_sum.found": "diff",
        "_beside.found": "diff",
        "_line.found": "diff",
        "_requests.found": "diff",
        "_cache.found": "diff",
        "histories.medium": "display",
        "requests.medium": "display",
        "_beside.medium": "display",
        "_line.medium": "display",
    },
    "ui.editor": {
        "Editor.__init__.at": "options",
        "Editor._with_bar.bar": "render_status_line",
    },
    "ui.editor_history": {
        "Remembered.__init__.place": "path",
        "remembered.place": "path",
        "entry.words": "text",
    },
    "ui.editor_keys": {
        "keys.pasted": "on_paste",
    },
    "ui.findings": {
        "ok.found": "message",
        "warning.found": "message",
        "fault.found": "message",
        "ok.next_step": "hint",
        "warning.next_step": "hint",
        "fault.next_step": "hint",
        "screen.medium": "display",
    },
    "ui.going_back": {
        "_tell.did": "action",
        "undo.talk": "repl",
        "rewind.talk": "repl",
        "rewind.words": "text",
        "redo.talk": "repl",
        "edit.talk": "repl",
        "fork.talk": "repl",
        "fork.words": "text",
        "_number.words": "text",
        "_tell.talk": "repl",
    },
    "ui.holdings": {
        "listed.kept": "tenants",
        "pruned.found": "results",
        "size.count": "size_bytes",
        "listed.medium": "display",
        "pruned.medium": "display",
    },
    "ui.inspecting": {
        "screen.known": "view",
        "charted.known": "view",
        "transcript.known": "view",
        "_facts.known": "view",
        "_bills.known": "view",
        "_head.known": "view",
        "_go_on.known": "view",
        "_listed.known": "view",
        "screen.bars": "with_chart",
        "whole.waits": "is_unconfirmed",
        "whole.at": "number",
        "screen.medium": "display",
        "charted.medium": "display",
        "transcript.medium": "display",
        "whole.medium": "display",
        "_listed.medium": "display",
    },
    "ui.labelled": {
        "waiting.run": "open_run",
        "counted.one": "noun",
        "labelled.medium": "display",
        "_wrapped.words": "text",
        "_wrapped.medium": "display",
    },
    "ui.linting": {
        "mended.made": "repair",
        "mended.places": "item_paths",
        "mended.kept": "is_saved",
        "_at.places": "item_paths",
        "found.medium": "display",
        "mended.medium": "display",
    },
    "ui.listing": {
        "listed.glances": "summaries",
        "record.glance": "summary",
        "record.said": "unconfirmed",
        "record.run": "open_run",
        "found.places": "results",
        "_facts.glance": "summary",
        "_facts.said": "unconfirmed",
        "_facts.run": "open_run",
        "listed.medium": "display",
        "record.medium": "display",
        "found.medium": "display",
    },
    "ui.medium": {
        "cut.room": "columns",
        "padded.room": "columns",
        "cut.more": "ellipsis",
        "padded.right": "align_right",
        "Medium.paint.words": "text",
        "width.words": "text",
        "cut.words": "text",
        "fitted.words": "text",
        "padded.words": "text",
    },
    "ui.models": {
        "screen.entries": "providers",
        "megabytes.size": "size_bytes",
        "screen.medium": "display",
    },
    "ui.prompt": {
        "terminal_reader.at": "options",
        "on_screen.words": "text",
    },
    "ui.raced": {
        "screen.lanes": "results",
        "_columns.lanes": "results",
        "_bars.lanes": "results",
        "progress.room": "columns",
        "progress.of": "total",
        "screen.medium": "display",
        "_bars.medium": "display",
    },
    "ui.receipt": {
        "receipt.calls": "call_links",
        "tokens.used": "usage",
    },
    "ui.runs": {
        "Runs.__init__.show": "view",
        "Runs.__init__.talk": "repl",
        "Runs.__init__.medium": "display",
    },
    "ui.settings": {
        "table.there": "settings",
        "as_rows.there": "settings",
        "table.medium": "display",
    },
    "ui.shelling": {
        "part.said": "output",
        "bounded.said": "output",
        "part.code": "exit_code",
        "ended.code": "exit_code",
        "shell.talk": "repl",
        "_kept.talk": "repl",
    },
    "ui.signals": {
        "on_signal.act": "callback",
    },
    "ui.spending": {
        "usage.own": "prices",
        "cost.own": "prices",
        "_lines.own": "prices",
        "_figures.one": "totals",
    },
    "ui.status": {
        "status.held": "state",
    },
    "ui.telling": {
        "Teller.__init__.sheet": "renderer",
        "Teller.__init__.folded": "format_reasoning",
        "one_line.words": "text",
    },
    "ui.tree": {
        "table.known": "view",
        "seen.known": "view",
        "_columns.known": "view",
        "_session.known": "view",
        "marked.drawn": "rows",
        "_columns.drawn": "rows",
        "_amounts.drawn": "rows",
        "_numbers.head": "heading",
        "_numbers.goes": "drop_order",
        "tree.fits": "table",
        "_words.status": "with_status",
        "table.medium": "display",
        "tree.medium": "display",
        "_columns.medium": "display",
    },
    "ui.unechoed": {
        "on_key.act": "callback",
        "unechoed.terminal": "fd",
    },
    "ui.window": {
        "table.filling": "usage",
        "together.filling": "usage",
        "meter.filling": "usage",
        "_counter.filling": "usage",
        "_bar.long": "columns",
        "_figure.estimated": "is_estimate",
        "table.medium": "display",
        "meter.medium": "display",
        "_bar.medium": "display",
    },
    "ui.markdown.code": {
        "coloured.ink": "state",
        "_opens_comment.ink": "state",
    },
    "ui.markdown.cutting": {
        "cut.partial": "has_partial_line",
        "_of_the_last.partial": "has_partial_line",
        "cut.carry": "state",
        "cut.paper": "options",
        "end_of_line.carry": "state",
        "_before_the_last.carry": "state",
        "_before_the_last.paper": "options",
        "_of_the_last.paper": "options",
        "_paragraph.paper": "options",
        "_place.words": "text",
        "_heads.words": "text",
        "is_settled.words": "text",
        "_means_the_same.words": "text",
        "_said.words": "text",
    },
    "ui.markdown.frames": {
        "stubs.frames": "containers",
        "prefix.frames": "containers",
        "inside.frames": "containers",
        "frames_of.frames": "containers",
    },
    "ui.markdown.inlines": {
        "_Words._mark.opens": "is_opening",
        "spans.words": "text",
        "spans.paper": "options",
        "plain.words": "text",
        "_Words.__init__.paper": "options",
        "_Words._say.words": "text",
    },
    "ui.markdown.page": {
        "Page.__init__.columns": "get_columns",
        "Often.__init__.act": "callback",
        "Page.__init__.paper": "options",
        "Page.say.words": "text",
    },
    "ui.markdown.painting": {
        "Painter.show.still_open": "open_rows",
    },
    "ui.markdown.reading": {
        "Reading._look.partial": "has_partial_line",
        "Reading.__init__.paper": "options",
    },
    "ui.markdown.rendering": {
        "Rendering.rows.before": "stop_node",
        "Rendering.rows.upto": "max_chars",
        "Rendering._table.form": "layout",
        "Rendering.__init__.paper": "options",
        "Rendering.__init__.carry": "state",
        "numbered.carry": "state",
    },
    "ui.markdown.spans": {
        "wrapped.room": "columns",
        "broken.room": "columns",
        "clean.words": "text",
        "drawn.paper": "options",
        "pieces.words": "text",
        "_parts.words": "text",
        "_drawn.paper": "options",
    },
    "ui.markdown.tables": {
        "form.sides": "alignments",
        "head_rows.form": "layout",
        "line_rows.form": "layout",
        "_rows.form": "layout",
        "_row.form": "layout",
        "head_rows.paper": "options",
        "line_rows.paper": "options",
        "_rows.paper": "options",
        "_row.paper": "options",
    },
    "ui.along": {
        "mentioned.words": "text",
        "parts_of.words": "text",
        "attach.talk": "repl",
        "attach.words": "text",
        "detach.talk": "repl",
        "detach.words": "text",
        "split.words": "text",
    },
    "ui.chart": {
        "chart.medium": "display",
        "_room.medium": "display",
    },
    "ui.commands": {
        "help_.talk": "repl",
        "exit_.talk": "repl",
        "status.talk": "repl",
        "next_.talk": "repl",
        "next_.words": "text",
        "context.talk": "repl",
        "inspect.talk": "repl",
        "model.talk": "repl",
        "owner.talk": "repl",
        "compact.talk": "repl",
        "compact.words": "text",
        "retry.talk": "repl",
        "stop.talk": "repl",
        "obey.talk": "repl",
    },
    "ui.copying": {
        "copy.talk": "repl",
        "osc52.words": "text",
        "handed_on.words": "text",
        "_took.words": "text",
    },
    "ui.earlier": {
        "last_turns.medium": "display",
        "_message.medium": "display",
    },
    "ui.elsewhere": {
        "new.talk": "repl",
        "clear.talk": "repl",
        "resume.talk": "repl",
        "_leave.talk": "repl",
        "rename.talk": "repl",
        "export.talk": "repl",
        "export.words": "text",
    },
    "ui.known_models": {
        "table.medium": "display",
    },
    "ui.pausing": {
        "paused.medium": "display",
    },
    "ui.sheet": {
        "Later.say.words": "text",
    },
    "ui.table": {
        "fitted.medium": "display",
        "lines.medium": "display",
        "_line.medium": "display",
        "_too_wide.medium": "display",
    },
    "ui.thinking": {
        "folded.words": "text",
        "folded.medium": "display",
        "reasoning.talk": "repl",
    },
    "ui.markdown.parsing": {
        "inline.words": "text",
    },
}

DOCS = {
    "terminal": """Terminal user interface: answers, prompts, the REPL and the views of every command.

Read `repl` first (the loop of an interactive chat), then `terminal` (widths, styles, tables, escaping).
A view is a function from values to lines; it reads no store and sends no request.
Text from models, files and other clients is escaped before a terminal sees it.
""",
    "terminal.terminal": """Text output for terminals, pipes and files.

`DisplayOptions` holds the width, colors and characters that a stream supports; a pipe has no width and no colors.
`escape_control_chars` must be applied to all text that a model, a file or another user wrote.
Also tables that drop columns to fit, lines with labels, and `AnswerPrinter`, which writes the text of an answer to
stdout and everything else to stderr.
""",
    "terminal.pager": """Paging of output that is taller than the terminal: $PAGER, else less.

Nothing is paged in a pipe, with TERM=dumb, or where no key can be pressed. Without a pager the lines are printed.
""",
    "terminal.signals": """Signal handlers of a running command: Ctrl-C, SIGTERM and SIGHUP.

SIGTERM and SIGHUP cancel the whole command: what was received is stored, and the exit code is the one that shells
show for the signal.
""",
    "terminal.answer": """One streamed answer in a terminal: rendering, cancellation, reasoning.

Markdown is rendered only where the cursor can be moved; a pipe or a file gets the text as the model wrote it.
The Markdown renderer is imported with the first text of an answer. Ctrl-C cancels the task of the answer alone and
raises Interrupted after the turn has saved its partial output.
""",
    "terminal.approvals": """Approval prompt: show pending calls and ask for a decision on each.

Each decision is saved when it is made, and no call runs before all of them are decided. Leaving (Ctrl-C, Ctrl-D,
end of input) decides nothing.
""",
    "terminal.run_state_view": """View of a paused run from a RunState: agents, calls, decisions, limits.

Loaded without the agent runner, so that a state is shown without a store and without an event loop.
""",
    "terminal.agent_chat": """Interactive chat with agents.

A message starts a run. When the run pauses, the pending calls are put to the person and the run resumes after the
last decision. Commands that would move the head during an open run are rejected.
`RunPrinter` prints one line on stderr for each tool call, handoff and guardrail.
""",
    "terminal.diff_view": """Views of a comparison: two histories side by side, or two requests.

The first difference is printed first, because it limits what the prompt cache can reuse.
""",
    "terminal.inspect_view": """Views of a conversation for `convo inspect` and `convo next`.

The link tree, the chart of input tokens, the items in full, and the next request as JSON or as a curl command.
A curl command reads the body from a here-document and names the variable of the API key, not the key.
""",
    "terminal.line_editor": """Line editor of the REPL, built on prompt_toolkit.

Draws on stderr, so that stdout carries only answers. Input is not echoed while an answer streams; Esc cancels the
answer and other keys go to the next prompt. All prompts of one user share a history file.
Slow to import: load it only for a terminal that can be drawn on (see `prompt.make_prompt_reader`).
""",
    "terminal.list_views": """Tables of sessions, search results and stored data.""",
    "terminal.settings_views": """Tables of providers, models, prices, context windows and settings.

The functions named *_to_json return the same data for programs.
""",
    "terminal.prompt": """Reading messages and completing words at the prompt.

`make_prompt_reader` returns the line editor, or a plain reader for TERM=dumb, for stderr in a file and for the
setting editing = "plain". Completion covers slash commands, their arguments and file names after "@".
""",
    "terminal.raw_terminal": """Terminal input without echo, one key at a time.

Ctrl-C and Ctrl-Z keep their meaning. The previous mode is restored on exit.
""",
    "terminal.repl": """REPL: the loop of an interactive chat.

Reads a line, runs a slash command, a shell command or a turn, and reports errors without ending the chat.
Input is saved before it is sent, so /retry works after any error. Ctrl-C or Esc cancels an answer; Ctrl-C twice at
an empty prompt, or Ctrl-D, exits.
""",
    "terminal.report_views": """Reports of `convo race`, `convert`, `compact`, `lint` and `repair`.""",
    "terminal.slash_commands": """Slash commands of the REPL, and what each does to the conversation.

`SLASH_COMMANDS` is the table: name, usage, help, handler. An unknown command is an error with a suggestion and is
never sent to a model; a message that begins with a slash is typed with two.
Attachments (@FILE, /attach) and shell commands (!, !!) are here as well.
""",
    "terminal.status_line": """Status of a conversation in one line or a few: status bar, receipt, /status, open run.

Numbers are tokens and USD. The status bar shortens its parts, then drops them, until it fits; the owner stays.
A receipt ends with the handle that continues the conversation.
""",
    "terminal.usage_views": """Views of token usage: context window by part, session usage and cost.

Estimated token counts begin with "~".
""",
    "terminal.markdown": """Markdown rendered in a terminal while it streams.

Finished rows are printed once; only the last few open rows are redrawn. The result does not depend on how the
text was split into deltas, and each step reads only the open part of the text.
Read `stream` first (what is finished, and when it is drawn), then `render` (blocks and inline text as rows).
""",
    "terminal.markdown.render": """Markdown source to rows of styled text, with markdown-it and Pygments.

Headings keep their "#", and without colors emphasis keeps its marks. Code starts at the left margin. A table keeps
the column widths of its first rows. Reference links, HTML and math are shown as source.
A container whose start was printed is reopened by a stub: its marker and `CUT_MARK`.
""",
    "terminal.markdown.stream": """Incremental rendering: cut off what is finished, redraw the rest.

`MarkdownStream` keeps the open part of the text, `cut_finished` decides what no later text can change, `RowPainter`
writes the difference to the terminal, and `MarkdownRenderer` limits redraws to one per 40 ms.
An emphasis mark that is not closed within 500 characters is text; a line of over 2,000 characters is broken.
""",
}

MOVES = {
    # ui.thinking: cli.desk imports it for every chat; in slash_commands it would load all command handlers at start.
    "terminal.answer": ["ui.answering", "ui.sheet", "ui.thinking"],
    # ui.rewriting (arguments in $EDITOR) is imported by asking, deciding and the approval commands, never by the prompt.
    "terminal.approvals": ["ui.asking", "ui.deciding", "ui.rewriting"],
    "terminal.run_state_view": ["ui.pausing"],
    # ui.runs loads the agent runner: the REPL without agents imports it only for annotations. ui.telling has the same users.
    "terminal.agent_chat": ["ui.runs", "ui.telling"],
    # prompt_toolkit must not load with prompt (tests/test_house.py: heavy_at_start); prompt is imported for each chat.
    "terminal.line_editor": [
        "ui.editor",
        "ui.editor_input",
        "ui.editor_keys",
        "ui.editor_history",
        "ui.editor_words",
    ],
    "terminal.prompt": ["ui.prompt", "ui.completing"],
    # convo inspect --watch needs on_key without prompt_toolkit, and no prompt; termios exists on POSIX alone.
    "terminal.raw_terminal": ["ui.unechoed"],
    # ui.commands is the table of the handlers in slash_commands; completion needs it without the REPL.
    "terminal.repl": ["ui.conversing", "ui.earlier"],
    "terminal.slash_commands": [
        "ui.commands",
        "ui.along",
        "ui.asking_with",
        "ui.copying",
        "ui.elsewhere",
        "ui.going_back",
        "ui.shelling",
        "ui.guide",
    ],
    # convo sessions is the list that is waited for most: providers, prices and trust must not load with it.
    "terminal.list_views": ["ui.listing", "ui.holdings"],
    "terminal.settings_views": ["ui.models", "ui.known_models", "ui.settings"],
    # receipt and bar load with every chat, spending and window load the inspect package (asking_with and at_prompt
    # import them inside functions today). ui.open_run: used by inspecting and listing, which must not load approvals.
    "terminal.status_line": ["ui.bar", "ui.receipt", "ui.status", "ui.open_run"],
    "terminal.usage_views": ["ui.spending", "ui.window"],
}

LOCAL = {
    ("terminal.markdown.render", "pygments.token.Token"): "PygmentsToken",
}

NOTES = """
SHARED CLASSES
- Medium -> DisplayOptions (parameter `display`), Paper -> MarkdownOptions (`options`), Sheet -> AnswerRenderer (write, finish), Printer -> AnswerPrinter,
  Teller -> RunPrinter, Conversing -> Repl (`repl`), Look -> ReplHost, Runs -> AgentChat, Shown -> RunView, Standing -> StatusLineState, Bar -> StatusLine,
  At -> PromptOptions, Reader -> PromptReader, Typewriter -> PlainReader, Editor -> LineEditor, Offer -> Suggestion, Place (completing) -> CompletionTarget,
  Place (listing) -> SearchResult, Finding/Report/Level (findings) -> CheckResult/CheckReport/CheckLevel, Entry -> ProviderStatus, Drawn -> TreeRow.
- safe -> escape_control_chars, counted -> format_count, labelled -> key_value_lines, Line -> KeyValue, fitted+lines (table) -> fit_columns+table_lines.
- ReplHost is implemented by cli.at_prompt.AtPrompt (which inherits prepare and receipt from cli.desk.Desk), RunView by cli.running.Show. ATTRIBUTES has the rows of
  these classes too, with the same names; cli_a.py has those of Desk and Show again, with equal names (checked at 09:21). Tests have no further implementation.
- cli.converting, cli.providers, cli.checkup, cli.judging, cli.looking construct ProviderStatus, CheckResult, SearchResult, PausedRun, DiffSide with keywords: the fields
  are renamed with them. The member FAULT of Level becomes ERROR; its value "fault" is printed and stays.

ATTRIBUTES: what the script must follow
- Fields are keywords of constructors and of NamedTuple._replace: Medium(width, colour, boxes), Column(right=, goes=, style=), _replace(cells=), _replace(columns=),
  Standing._replace(along=), Frame._replace(number=, marker=, prefix=), Ink._replace(closes=, stack=), Carry._replace(gap=), Cut._replace(rows=), Span._replace(words=),
  Paper._replace(width=). Positional unpacking stays as it is: `for name, (level, found, next_step) in reports`, `held[1:] == span[1:]` in joined.
- `Printer.take`, `end`, `_say` are used by Teller through super() and self; `Page` and `Later` implement Sheet; `Editor` and `Typewriter` implement Reader. Each has its rows.
- talking.py passes `bar.line` (a bound method) as PromptOptions.render_status_line; desk.py passes functions as `folded`.
- Frozen, overrides of prompt_toolkit: load, load_history_strings, store_string, _loaded_strings, read_keys, get_completions(_async), disable_bracketed_paste,
  reserve_space_for_menu. `_math` and `_math_block` are called by markdown-it by position.
- PARAMETERS has, beside keywords, the regular ones of the package: talk -> repl, medium -> display, words -> text, paper -> options, carry -> state. Not renamed, since
  the function has a `text` already: copying.copy.words, going_back.edit.words. Locals called `words`, `said`, `told`, `made` remain: docstrings step.
- `style` stays an SGR string or a key of SGR_STYLES; `Column.style` and `Span.style` differ in this. Column.room -> width is a property beside the field-less class, no clash.

MODULES (corrections in MOVES, all for start-up; the plan merges a lazy module into an eager one)
- Tried: move.py on a copy of the tree with all tables reports no CLASH, COLLISION, SHADOW or UNSAFE for any part, and every new module of
  terminal imports alone in a fresh process (no cycle; prompt_toolkit only in line_editor, pygments and markdown_it only in markdown.*).
- These imports of the new modules serve annotations only (by AST). Put them under TYPE_CHECKING with the move, else the merged module loads them for everybody:
  approvals: agent_runner.runner, runstate.state, runstate.format (with them it loads 90 modules of ours) - agent_chat: agent_runner.runner -
  report_views: transfer.race, transfer.compact, lint.repair, lint.report, strategies.transfer, usage.counting, config.sections (65 modules) -
  status_line: inspect.view, strategies.state, config.sections - diff_view: inspect.diff - inspect_view: inspect.context_window (NextRequest) -
  list_views: chat.lookup, stores.base - usage_views, repl: config.sections, history.records - repl: chat.conversation.
  Then measure: python -m tests.bench.startup, and convo lint, doctor, sessions alone.
- move.py writes the docstring of a package's __init__ as its name ("terminal."): take those of DOCS["terminal"] and DOCS["terminal.markdown"] by hand.
- report_views merges the reports of five commands that have nothing in common but the table. ui.findings (CheckResult, CheckLevel, make_*_result) is used by
  `convo doctor` alone: it belongs in cli.doctor_checks. I left it in its row, because that row is the cli part's.
- Lazy imports inside functions must stay inside: sheet._made (markdown), prompt.terminal_reader (line_editor), thinking/commands (difflib), guide (textwrap),
  asking_with.usage and cost (usage_views), listing.record and _facts (labelled now in the same module's imports: may go to the top).
- terminal.terminal is five subjects (display, escaping and AnswerPrinter, tables, pager, signals; ~620 lines). By STYLE it could be terminal.display (medium, table,
  labelled), terminal.pager, terminal.signals, terminal.answer_printer. One constraint: labelled and table need `safe`, which is in ui.answer, so escape_control_chars,
  escape_char_match and the four constants must go with display. This splits a module of today, which move.py cannot do; by hand afterwards.
- handle_reasoning (ui.thinking.reasoning) stands in terminal.answer after the move; move it to slash_commands by hand (no other module uses it).
- tests/test_house.py allows markdown_it and pygments below convo.ui.markdown, prompt_toolkit below convo.ui.editor: becomes convo.terminal.markdown and
  convo.terminal.line_editor. tests/ui/test_sheet.py imports modules by name in a string.

CLASHES SETTLED
- All COLLISION lines of clashes.txt below terminal.*; both SHADOW lines of ui.markdown.rendering go away with code.ink -> make_lexer_state and tables.form ->
  compute_table_layout. IMPORT CLASH Token: LOCAL here (pygments' Token -> PygmentsToken; markdown-it's keeps its name, it is under TYPE_CHECKING in inlines).
  IMPORT CLASH table (ui.coming) goes away with context_table_lines. IMPORT CLASH Report (ui.linting): findings.Report is CheckReport, lint's is LintReport.
- tools exports form and Form: ours are compute_table_layout and TableLayout. told and made_by are not used as names here.
- `inspection.forks.Row` -> LinkRow (core), ours: StyledRow. `stores` SearchHit is the store's hit, SearchResult the line of the screen.

MERGE OR INLINE
- tree.tree is `yield from lines(...)`: inline (inspecting, cli.watching). inspecting._label/label: one cached function is enough. answering._run: into watched.
  deciding._not_ours and shelling.ignored are one empty function: keep ignore_signal, or let on_signal take None. shelling.ended has two callers, one line.
- `medium.drawn("\\n".join(lines(fitted(columns, medium), medium)))` occurs nine times, `medium.drawn("\\n".join(labelled(rows, medium)))` eight: one function each,
  render_table(columns, display) and render_key_values(rows, display). converted.result is the second already.
- Three copies of a number or "-": tree.figure, raced's f-strings, known_models._usd. Four of USD: receipt.spent, raced._usd, known_models._usd, tree's "".join(spent()).
  receipt.spent returns a list of none or one, which each caller joins: let it return str.
- bar.share and the percentages in window: one. medium.wrapped and labelled._wrapped: nearly one. labelled.waiting and listing._facts build "waiting" twice.
- compacted.taken, holdings.size, along._size and models.megabytes format bytes in four ways (1000 and 1024): decide on format_bytes.
- compacted._number and going_back._number parse a count with two errors. compacted.wished is an argument parser of its own (shlex + three flags).
- markdown: Paper has the fields of Medium plus links: could be one class. frames.first_line and is_blank are one-liners with many callers: keep.
- editor.Later (TimerSlot) and page.Often (Throttle): asyncio.TimerHandle | None in both; keep Throttle, inline TimerSlot into watch_stop_key.

WORDS (strings, in a commit of their own; not names)
- "waits for a decision" -> "needs approval"; "owner"/"held by" in repair output; "go on", "together", "last", "in"/"out"/"saw"/"reasoned" heads in tree and inspecting;
  "goes along with the next message" -> "attached"; "nobody wrote down how large this model's window is"; "put before it by its owner"; "for good" -> "always";
  NO_CHART_TEXT; help texts of SLASH_COMMANDS ("take the last turn back", "let a shorter history stand in place of this one").

FOR A PERSON TO DECIDE
- Handlers are called handle_NAME (handle_undo). "handle" is also our word for a conversation id: handle_resume(repl, handle). The alternative is run_NAME_command.
- Where lines are yielded the name is *_lines or *_rows, where a string is returned it is render_* (a screen) or format_* (a part of a line).
"""
