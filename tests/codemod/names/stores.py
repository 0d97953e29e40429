"""Final names of convo.stores: read by the script that carries the renaming out."""

NAMES = {
    # -- shared by all stores -----------------------------------------------------------------
    "stores.contract": {
        "Growth": "AppendItems",
        "KEPT": "UNCHANGED_DOCUMENT",
        "ANY": "ANY_HEAD",
        "Change": "Transaction",
        "Outline": "SessionStats",
        "Hit": "SearchHit",
        "Found": "HandleMatch",
        "run_lease": "run_lease_name",
    },
    "stores.rules": {
        "Expected": "ExpectedHead",
        "ANSWERED": "ANSWERED_STATUSES",
        "UNFINISHED": "UNFINISHED_STATUSES",
        "LARGEST": "MAX_INTEGER",
        "PLACE": "KEY_PREFIX_PATTERN",
        "written": "merge_link",
        "expect": "check_expected_head",
        "expect_revision": "check_next_revision",
        "places": "iter_referenced_keys",
        "names": "iter_stored_names",
        "check_names": "check_stored_names",
        "check_name": "check_stored_name",
        "check_ids": "check_item_ids",
        "last_number": "check_sequence_numbers",
        "own_id": "own_item_id",
        "place_in": "parse_key_prefix",
        "not_running": "run_not_open_error",
        "no_agent_run": "agent_run_not_found_error",
        "no_place": "node_not_found_error",
        "not_through": "not_on_path_error",
        "name_taken": "session_name_taken_error",
    },
    "stores.upkeep": {
        "Progress": "ReportProgress",
        "CutSession": "TruncatedSession",
        "Problem": "StoreProblem",
        "Problems": "ProblemCounter",
        "Recovery": "RecoveryReport",
        "StoreCheck": "StoreCheckReport",
        "Observe": "TransactionObserver",
        "not_observed": "ignore_transaction",
        "Abandoned": "AbandonedRun",
        "Holdings": "TenantStats",
        "Pruned": "PruneResult",
        "Upkeep": "StoreAdmin",
    },
    "stores.condition": {
        "FileCondition": "FileHealth",
        "ServerCondition": "ServerHealth",
        "Condition": "StoreHealth",
    },
    "stores.leasing": {"Hold": "LeaseGuard"},
    "stores.forms": {
        "PARENTS_ID": "SAME_AS_PARENT",
        "link_of": "decode_link",
        "route_of": "encode_route",
        "previous_of": "encode_previous_response_id",
        "session_of": "decode_session",
        "record_of": "encode_session_record",
        "mould": "split_integers",
        "cast": "merge_integers",
        "_emptied": "_take_integers",
        "_filled": "_put_integers",
        "_is_figure": "_is_integer",
    },
    "stores.verbatim": {
        "COMPACT": "COMPACT_SEPARATORS",
        "VERBATIM": "STORED_JSON_ENCODER",
        "dumps": "encode_json",
        "loads": "decode_json",
        "encodes": "is_utf8_encodable",
    },
    "stores.terms": {
        "SIGNS": "CJK_RANGES",
        "EMOJI": "EMOJI_RANGES",
        "VOICED": "JAPANESE_SOUND_MARKS",
        "LONGEST": "MAX_TERM_CHARACTERS",
        "_term": "_term_pattern",
        "terms": "tokenize",
        "terms_of": "tokenize_item",
        "phrases": "parse_search_phrases",
        "density": "phrase_density",
        "_folded": "_normalize_text",
        "_counts": "_is_significant",
    },
    "stores.open": {
        "KNOWN": "STORE_URL_FORMS",
        "POSTGRES": "POSTGRES_SCHEMES",
        "_file": "_sqlite_path",
        "_postgres": "_open_postgres_store",
        "_check_driver": "_check_postgres_driver",
        "examine": "probe_store",
        "is_writable": "is_store_writable",
        "schema_sql": "store_schema_sql",
    },
    # -- memory -------------------------------------------------------------------------------
    "stores.memory.tenant": {"Tenant": "TenantData", "age": "_link_created_at", "fresh": "_copy_link"},
    "stores.memory.tree": {
        "Place": "TreeNode",
        "Body": "StoredItem",
        "Grown": "PlannedNodes",
        "Record": "NodeReferrer",
        "Tree": "ItemTree",
        "stands": "_referenced_keys",
    },
    "stores.memory.running": {"Run": "ResponseRun", "Runs": "ResponseRuns"},
    "stores.memory.agents": {"_own": "_copy_run", "_copy": "_copy_json"},
    "stores.memory.upkeep": {
        "AROUND": "RECORD_OVERHEAD_BYTES",
        "MemoryUpkeep": "MemoryAdmin",
        "_holdings": "_tenant_stats",
    },
    "stores.memory.pruning": {
        "Old": "PrunableIds",
        "prune": "_prune_tenant",
        "_old": "_find_prunable",
        "_made": "_made_any_link",
        "_links": "_prunable_links",
        "_lives": "_is_conversation_retained",
    },
    # -- sqlite -------------------------------------------------------------------------------
    "stores.sqlite.database": {
        "Identity": "FileIdentity",
        "AGAIN_S": "BUSY_RETRY_S",
        "ROOM": "MIN_FREE_BYTES",
        "Database": "SqliteDatabase",
        "_log_of": "_wal_path",
        "identity": "file_identity",
        "make_private": "create_private_file",
        "_uri": "_database_uri",
        "_empty": "_open_empty_store",
    },
    "stores.sqlite.lane": {
        "Result": "JobResult",
        "MOST": "MAX_JOBS_PER_BATCH",
        "Waiting": "QueuedJob",
        "Lane": "ConnectionWorker",
        "_tell": "_notify_event_loops",
        "_wake": "_resolve_futures",
    },
    "stores.sqlite.faults": {
        "BUSY": "BUSY_CODES",
        "NO_ROOM": "DISK_FULL_CODES",
        "DAMAGED": "DAMAGED_CODES",
        "NOT_TEXT": "INVALID_UTF8_MESSAGE",
        "SENTENCES": "ERRORS_BY_CODE",
        "translated": "translate_errors",
        "code": "_result_code",
        "busy": "is_busy",
        "is_full": "is_disk_full",
        "fault": "_to_store_fault",
        "damaged": "damaged_file_error",
        "os_fault": "_os_error_to_store_fault",
    },
    "stores.sqlite.tenant": {
        "Named": "TableWithId",
        "NUMBER": "SELECT_ROWID",
        "Tenant": "TenantConnection",
        "now": "database_time_s",
        "blob": "key_to_blob",
        "asked": "to_query_name",
    },
    "stores.sqlite.schema": {
        "OURS": "APPLICATION_ID",
        "SCHEMA": "SCHEMA_VERSION",
        "SIGNED": "SIGNATURE_PRAGMAS",
        "PAGE": "PAGE_SIZE_BYTES",
        "OLDEST": "MIN_SQLITE_VERSION",
        "MIGRATIONS": "MIGRATIONS_FOLDER",
        "check": "check_schema_version",
        "applied": "read_schema_version",
        "migrate": "migrate_schema",
        "_run": "_run_migration",
        "_number": "_read_pragma",
        "_script": "_read_migration",
        "_statements": "_split_statements",
    },
    "stores.sqlite.filling": {"of_2": "_backfill_names", "FILLS": "BACKFILLS"},
    "stores.sqlite.traces": {"note": "request_vacuum", "clear": "vacuum_if_requested"},
    "stores.sqlite.names": {
        "CALLED": "SELECT_ITEMS_BY_HASH",
        "GIVEN": "SELECT_MEMBER_OF_ITEM",
        "STANDING": "SELECT_ITEM_BY_HALF_KEY",
        "ROUTES": "SELECT_ROUTES_BY_HASH",
        "HALF": "HALF_KEY_DIGITS",
        "CONVERSATION": "ROUTE_CONVERSATION_INDEX",
        "item": "select_item",
        "_in_place": "_select_item_by_key",
        "is_listed": "is_item_indexed",
        "is_route_listed": "is_route_indexed",
        "put": "index_item_id",
        "drop": "unindex_item_id",
        "put_given": "index_assigned_ids",
        "drop_given": "unindex_assigned_ids",
        "_is_given": "_is_assigned_id",
        "routes": "select_route_rowids",
        "put_route": "index_route",
        "drop_route": "unindex_route",
        "_is_listed": "_is_hash_indexed",
        "_put": "_insert_hash",
        "_drop": "_delete_hash",
        "_of_item": "_hash_item_id",
        "_of_conversation": "_hash_conversation_id",
        "_hash": "_hash_bytes",
    },
    "stores.sqlite.tree": {
        "NODE": "SELECT_NODE",
        "PATH": "SELECT_PATH",
        "LEFT_BEHIND": "SELECT_OTHER_NODES_OF_ITEM",
        "NOWHERE": "NO_NODE",
        "NEEDED": "SELECT_NODE_USE",
        "node": "node_rowid",
        "seek": "find_node",
        "path": "select_path",
        "tail": "select_items_after",
        "_way": "_select_path_rows",
        "_nodes": "_nodes_from_rows",
        "decoded": "decode_items",
        "item": "select_node_item",
        "words": "select_first_words",
        "grow": "insert_missing_nodes",
        "_make": "_insert_node",
        "_keep": "_insert_missing_item",
        "_raw": "_short_hash",
        "left_behind": "select_other_nodes_of_item",
        "erase": "erase_item",
        "collect": "delete_unreferenced_nodes",
        "_drop": "_delete_unreferenced_item",
    },
    "stores.sqlite.unneeded": {
        "LINK": "DELETE_UNREFERENCED_LINK",
        "SESSION": "DELETE_UNREFERENCED_SESSION",
        "REPEATED": "DELETE_UNREFERENCED_JSON",
        "drop_link": "delete_unreferenced_link",
        "drop_session": "delete_unreferenced_session",
        "drop_repeated": "_delete_unreferenced_json",
        "drop_held": "delete_unreferenced_targets",
    },
    "stores.sqlite.records": {
        "SESSIONS": "SELECT_SESSIONS",
        "RECORDED": "SELECT_SESSION_ROW",
        "USED_LAST": "SELECT_LAST_USE",
        "CALLED_SO": "SELECT_NAME_CONFLICT",
        "STANDING": "SELECT_CONVERSATION_ROW",
        "MEMBERS": "SELECT_MEMBERS",
        "BACK": "SELECT_PATH_ROWIDS",
        "session": "select_session",
        "numbered_session": "select_session_by_rowid",
        "sessions": "select_sessions",
        "outline": "select_session_stats",
        "Recorded": "SessionRow",
        "put_session": "upsert_session",
        "_columns": "_session_columns",
        "_place": "_use_number",
        "conversation": "select_conversation",
        "_metadata": "_decode_metadata",
        "Standing": "ConversationRow",
        "check_session": "check_stored_session",
        "check_conversation": "check_stored_conversation",
        "put_conversation": "upsert_conversation",
        "unname": "delete_assigned_ids",
        "_make": "_insert_conversation",
        "_name": "_insert_assigned_ids",
    },
    "stores.sqlite.links": {
        "LINKS": "SELECT_LINKS",
        "FAMILY": "WITH_RELATED_LINKS",
        "HELD": "LINK_REFERENCE_COLUMNS",
        "HOLDS": "SELECT_LINK_REFERENCES",
        "link": "select_link",
        "of_session": "select_session_links",
        "answers": "select_responses_to",
        "family": "select_related_links",
        "of_conversation": "select_conversation_links",
        "_oldest_first": "_select_links_oldest_first",
        "put": "upsert_link",
        "_row": "_link_columns",
        "_route": "_route_rowid",
        "number": "link_rowid",
        "_session": "_session_rowid",
        "_once": "_intern_json",
    },
    "stores.sqlite.runs": {
        "OPEN": "SELECT_OPEN_RUN",
        "START": "UPSERT_RUN",
        "start": "start_response_run",
        "open_run": "require_open_run",
        "end": "end_response_run",
        "drop": "delete_response_run",
        "append": "insert_events",
        "_last": "_last_event_number",
        "events": "select_events",
    },
    "stores.sqlite.agents": {
        "RUNS": "SELECT_AGENT_RUNS",
        "DOCUMENT": "UPSERT_AGENT_DOCUMENT",
        "CALL": "UPSERT_AGENT_CALL",
        "CALLS": "SELECT_AGENT_CALLS",
        "There": "AgentRunRow",
        "run": "select_agent_run",
        "runs": "select_agent_runs",
        "calls": "select_agent_calls",
        "check": "check_agent_run_revision",
        "put": "upsert_agent_run",
        "_session": "_require_session_rowid",
        "put_call": "upsert_agent_call",
        "drop": "delete_agent_runs",
        "_run_of": "_agent_run_from_row",
    },
    "stores.sqlite.leases": {
        "take": "acquire_lease",
        "release": "release_lease",
        "holder": "select_lease_holder",
    },
    "stores.sqlite.searching": {
        "BEHIND_ALL": "HIGHEST_CHARACTER",
        "FOUND": "SELECT_HANDLES",
        "MATCHES": "SELECT_MATCHING_ITEMS",
        "REACHING": "SELECT_SESSIONS_OF_ITEM",
        "find": "find_handles",
        "search": "search_items",
        "_matches": "_matching_items",
    },
    "stores.sqlite.changing": {
        "commit": "apply_transaction",
        "_needed": "_referenced_nodes",
        "_erased": "_nodes_to_erase",
    },
    "stores.sqlite.removing": {
        "UNNEEDED": "SELECT_UNNEEDED_LINKS",
        "LINK": "SELECT_LINK_TO_REMOVE",
        "SESSION": "SELECT_SESSION_TO_REMOVE",
        "forget_session": "_clear_session",
        "forget_conversation": "_delete_conversation",
        "forget_link": "_clear_link",
        "tidy": "_delete_unreferenced_rows",
    },
    "stores.sqlite.pruning": {
        "OLD": "WITH_OLD_SESSIONS",
        "SESSIONS": "SELECT_OLD_SESSIONS",
        "LINKS": "SELECT_OLD_LINKS",
        "CONVERSATIONS": "SELECT_OLD_CONVERSATIONS",
        "LIVING": "SELECT_RECENT_LINK",
        "KEPT": "SELECT_RETAINED_RECORDS",
        "AT_ONCE": "MAX_ROWS_PER_BATCH",
        "Old": "PruneBatch",
        "prune": "prune_batch",
        "prunable": "count_prunable",
        "_next": "_next_batch",
        "_sessions": "_find_old_sessions",
        "_links": "_find_old_links",
        "_conversations": "_find_old_conversations",
        "FINDERS": "OLD_ROW_FINDERS",
        "_lives": "_is_recently_used",
        "_handle": "_conversation_handle",
    },
    "stores.sqlite.upkeep": {
        "ABANDONED": "SELECT_ABANDONED_RUNS",
        "ENDED": "SELECT_ENDED_RUNS",
        "COUNTS": "COUNT_CLAUSES",
        "BODIES": "SUM_BODY_BYTES",
        "BOUNDS": "SELECT_TIME_RANGE",
        "AROUND": "ROW_OVERHEAD_BYTES",
        "SqliteUpkeep": "SqliteAdmin",
        "_holdings": "_select_tenant_stats",
        "_abandoned": "_select_abandoned_runs",
        "_forget": "_prune_events",
        "_secret": "_get_or_create_secret",
    },
    "stores.sqlite.examining": {
        "WAIT_S": "PROBE_BUSY_TIMEOUT_S",
        "QUICK_S": "QUICK_CHECK_LIMIT_S",
        "MOUNTS": "MOUNTINFO_FILE",
        "examine": "probe_database",
        "filesystem": "filesystem_type",
        "_schema": "_probe_schema_version",
        "_mounts": "_read_mounts",
    },
    "stores.sqlite.backup": {
        "PAGES": "PAGES_PER_STEP",
        "FOREVER_S": "NO_LIMIT_S",
        "backup": "backup_database",
        "_source": "_open_source",
    },
    "stores.sqlite.new_file": {
        "CHUNK": "COPY_CHUNK_BYTES",
        "NO_NAMELESS_FILES": "NO_TMPFILE_ERRNOS",
        "_taken": "_target_exists_error",
        "_opened": "_open_unlinked_database",
        "_put": "_publish_file",
        "_name": "_link_unnamed_file",
        "_copy": "_copy_file_bytes",
        "sync_folder": "_sync_folder",
    },
    "stores.sqlite.checking": {
        "MOST_LINES": "MAX_INTEGRITY_LINES",
        "STEP": "PROGRESS_INTERVAL_ROWS",
        "CONVERSATION": "ROUTE_CONVERSATION_INDEX",
        "OUR_TABLES": "REQUIRED_TABLES",
        "COUNTED": "COUNTED_TABLES",
        "NODES": "SELECT_NODES_TO_CHECK",
        "WAY": "SELECT_PATH_TO_CHECK",
        "MEMBERS": "SELECT_MEMBERS_TO_CHECK",
        "check": "check_database",
        "reading": "read_snapshot",
        "_is_logged": "_has_wal_data",
        "_stamp": "_file_stamp",
        "_connected": "_connect_read_only",
        "_Row": "_NodeRow",
        "_Checking": "_DatabaseCheck",
        "hash_of_text": "hash_item_text",
        "_has_id": "_has_item_id",
        "is_json": "is_valid_json",
        "_is_record": "_is_session_record",
    },
    "stores.sqlite.page_reader": {
        "Value": "ColumnValue",
        "MAGIC": "SQLITE_MAGIC",
        "SIZES": "PAGE_SIZES",
        "USUAL_SIZE": "DEFAULT_PAGE_SIZE",
        "HEADER": "FILE_HEADER_BYTES",
        "APPLICATION_ID": "APPLICATION_ID_SLICE",
        "TREES": "TREE_PAGES",
        "WITH_ROWS": "PAGES_WITH_ROWS",
        "LOG_MAGIC": "WAL_MAGIC",
        "LOG_HEADER": "WAL_HEADER_BYTES",
        "FRAME_HEADER": "FRAME_HEADER_BYTES",
        "SAMPLE": "MAX_SAMPLED_PAGES",
        "Cell": "PageCell",
        "INT_BYTES": "INTEGER_SIZES_BYTES",
        "_u32": "_read_u32",
        "_varint": "_read_varint",
        "_record": "_parse_record",
        "_checksum": "_wal_checksum",
    },
    "stores.sqlite.recover": {
        "BATCH": "ROWS_PER_BATCH",
        "REPORTED": "PROGRESS_INTERVAL_PAGES",
        "ROW_ID": "ROWID_CODE",
        "SHAPES": "TABLE_SHAPES",
        "WITHOUT_ROW_IDS": "INDEX_SHAPES",
        "INDEXES": "RECOVERY_INDEXES",
        "ADDED": "ADDED_COLUMN_COUNTS",
        "TYPES": "COLUMN_TYPES",
        "COLUMNS": "TABLE_COLUMNS",
        "HALF_KEY": "HALF_KEY_BYTES",
        "KEY": "KEY_BYTES",
        "DOCUMENT": "AGENT_DOCUMENT_PREFIX",
        "SCRATCH": "CREATE_SCRATCH_TABLES",
        "WAY": "SELECT_PATH_FROM_ROOT",
        "STANDING": "INSERT_REFERENCED_NODES",
        "Row": "RecoveredRow",
        "NAME_THE_FILE": "STORE_OPTION_HINT",
        "recover": "recover_database",
        "_Reading": "_RowReader",
        "_place": "_rowid_column",
        "_fits": "_matches_shape",
        "_has_type": "_matches_column_type",
        "_table_of": "_identify_table",
        "_index_of": "_identify_index",
        "_Broken": "_BrokenHistory",
        "_Repair": "_RowRepair",
        "_orphaned": "_orphan_condition",
        "_broken_at": "_first_broken_index",
        "_follows": "_child_key",
        "_is_record": "_is_known_session_record",
    },
    # -- postgres -----------------------------------------------------------------------------
    "stores.postgres.database": {
        "ATTEMPTS": "MAX_ATTEMPTS",
        "ENCODED": "URL_ENCODING_HINT",
        "Database": "PostgresDatabase",
        "OWN": "CONNECTION_OPTIONS",
        "_is_open": "_is_connection_open",
        "_break": "_break_connection",
        "_leave": "_roll_back",
        "_options": "_parse_url",
        "_place": "_format_location",
    },
    "stores.postgres.faults": {
        "REPEATABLE": "RETRYABLE_ERRORS",
        "UNMIGRATED": "MISSING_TABLE_ERRORS",
        "NOT_ALLOWED": "NO_WRITE_ERRORS",
        "translated": "translate_errors",
        "fault": "_to_convo_error",
        "_store_fault": "_to_store_fault",
        "unmigrated": "unmigrated_error",
        "_said": "_error_summary",
    },
    "stores.postgres.reaching": {
        "REACH": "DEFAULT_CONNECTION_HINT",
        "MIGRATE": "MIGRATE_COMMAND",
        "SESSION_POOLER": "SUPABASE_DIRECT_HINT",
        "PAUSED": "SUPABASE_POOLER_HINT",
        "POOLERS_USER": "SUPABASE_USER_HINT",
        "DIRECT": "SUPABASE_DIRECT_HOST",
        "POOLER": "SUPABASE_POOLER_HOST",
        "UNREACHED": "UNREACHABLE_PATTERN",
        "STEPS": "CONNECTION_HINTS",
        "AROUND": "CONNECTION_ERROR_PREFIX",
        "step": "choose_connection_hint",
        "shortened": "shorten_message",
    },
    "stores.postgres.tenant": {
        "Connection": "DatabaseConnection",
        "Ask": "Statement",
        "SNAPSHOT": "BEGIN_SNAPSHOT",
        "Tenant": "TenantConnection",
        "number_of": "_tenant_number",
        "together": "run_pipeline",
        "columns": "to_columns",
    },
    "stores.postgres.names": {
        "ESCAPE": "ESCAPE_CHARACTER",
        "UNFIT": "UNSTORABLE_CHARACTERS",
        "ESCAPED": "ESCAPE_SEQUENCE",
        "DIGITS": "KEY_PATTERN",
        "HALF": "HALF_KEY_DIGITS",
        "written": "escape_name",
        "maybe": "escape_optional_name",
        "read": "unescape_name",
        "half": "node_id",
        "rest": "node_rest",
        "is_key": "is_node_key",
        "item_name": "item_uuid",
        "text_name": "json_uuid",
        "number": "hash_item_id",
    },
    "stores.postgres.bodies": {
        "QUICK": "ZLIB_LEVEL",
        "PLAIN": "UNCOMPRESSED_PREFIX",
        "packed": "encode_body",
        "item_of": "decode_body",
        "items_of": "decode_bodies",
        "_text": "_decompress_body",
    },
    "stores.postgres.schema": {
        "SCHEMA": "SCHEMA_VERSION",
        "LOCK": "MIGRATION_LOCK_ID",
        "MIGRATIONS": "MIGRATIONS_FOLDER",
        "PARTS": "COUNT_PARTITIONS",
        "APPLIED": "SELECT_SCHEMA_VERSION",
        "TABLE": "CREATE_TABLE_PATTERN",
        "check": "check_schema_version",
        "applied": "read_schema_version",
        "migrate": "migrate_schema",
        "_number": "_select_number",
        "partitioned": "partition_tables",
        "_spread": "_partition_table",
        "script": "read_migration",
    },
    "stores.postgres.tree": {
        "KEY": "NODE_KEY_SQL",
        "PATH": "SELECT_PATH",
        "path": "select_path",
        "tail": "select_items_after",
        "_way": "_select_path_rows",
        "_nodes": "_nodes_from_rows",
        "words": "first_words_of_body",
        "CALLED": "SELECT_ITEMS_BY_HASH",
        "STANDING": "SELECT_ITEM_BY_HALF_KEY",
        "item": "select_item",
        "_in_place": "_select_item_by_key",
    },
    "stores.postgres.records": {
        "SESSION": "SESSION_COLUMNS",
        "SESSIONS": "SELECT_SESSIONS",
        "OUTLINE": "SELECT_SESSION_STATS",
        "USED_LAST": "SELECT_LAST_USE",
        "ADD_SESSION": "INSERT_SESSION",
        "REPLACE_SESSION": "UPDATE_SESSION",
        "NOT_REMOVED": "DELETE_REMOVED_MARKER",
        "MEMBERS": "SELECT_MEMBERS",
        "BEHIND": "SELECT_PATH_TO_CONVERSATION",
        "ADD_CONVERSATION": "INSERT_CONVERSATION",
        "REPLACE_CONVERSATION": "UPDATE_CONVERSATION",
        "UNNAME": "DELETE_ASSIGNED_IDS",
        "NAME": "INSERT_ASSIGNED_IDS",
        "session": "select_session",
        "sessions": "select_sessions",
        "outline": "select_session_stats",
        "read_session": "session_from_row",
        "put_session": "build_session_upsert",
        "conversation": "select_conversation",
        "_id": "_member_id",
        "put_conversation": "build_conversation_upsert",
    },
    "stores.postgres.links": {
        "LINKS": "SELECT_LINKS",
        "OLDEST_FIRST": "ORDER_OLDEST_FIRST",
        "OF_CONVERSATION": "WHERE_CONVERSATION",
        "FAMILY": "WITH_RELATED_LINKS",
        "REPEATED": "INSERT_JSON",
        "WRITTEN": "LINK_COLUMNS",
        "VALUES": "LINK_PLACEHOLDERS",
        "ADD": "INSERT_LINK",
        "FILL": "UPDATE_FINAL_LINK",
        "REPLACE": "UPDATE_LINK",
        "link": "select_link",
        "of_session": "select_session_links",
        "of_conversation": "select_conversation_links",
        "answers": "select_responses_to",
        "family": "select_related_links",
        "_oldest_first": "_select_links_oldest_first",
        "read_link": "_link_from_row",
        "put": "build_link_upsert",
        "_sorted": "_sort_json_columns",
    },
    "stores.postgres.runs": {
        "NOW": "DATABASE_TIME_SQL",
        "START": "UPSERT_RUN",
        "END": "END_RUN",
        "FORGET_EMPTY": "DELETE_EMPTY_RUN",
        "APPEND": "INSERT_EVENTS",
        "OPEN": "SELECT_OPEN_RUN",
        "EVENTS": "SELECT_EVENTS",
        "start": "build_run_start",
        "end": "build_run_end",
        "drop": "build_run_deletes",
        "append": "insert_events",
        "_batch": "_encode_event_batch",
        "events": "select_events",
    },
    "stores.postgres.agents": {
        "THERE": "LOCK_AGENT_RUNS",
        "SESSION": "SELECT_SESSION_EXISTS",
        "RUNS": "SELECT_AGENT_RUNS",
        "ADD": "INSERT_AGENT_RUN",
        "REPLACE": "UPDATE_AGENT_RUN",
        "CALL": "UPSERT_AGENT_CALLS",
        "CALLS": "SELECT_AGENT_CALLS",
        "DROP": "DELETE_AGENT_RUNS",
        "run": "select_agent_run",
        "runs": "select_agent_runs",
        "calls": "select_agent_calls",
        "_run_of": "_agent_run_from_row",
        "questions": "build_agent_run_reads",
        "check_revision": "check_agent_run_revision",
        "check_there": "check_agent_run_references",
        "put": "build_agent_run_upsert",
        "put_calls": "build_agent_call_upserts",
        "drop": "build_agent_run_deletes",
        "_brings_session": "_writes_own_session",
        "_revisions": "_stored_revisions",
        "_first_ends": "_merge_agent_calls",
    },
    "stores.postgres.leases": {
        "TAKE": "UPSERT_LEASE",
        "HOLDER": "SELECT_LEASE",
        "HOLDER_NOW": "SELECT_LIVE_LEASE",
        "take": "acquire_lease",
        "release": "release_lease",
        "holder": "select_lease_holder",
    },
    "stores.postgres.searching": {
        "BEHIND_ALL": "HIGHEST_CHARACTER",
        "BATCH": "ITEMS_PER_BATCH",
        "FOUND": "SELECT_HANDLES",
        "KINDS": "HANDLE_KINDS",
        "ANY_SESSION": "SELECT_ANY_SESSION",
        "CANDIDATES": "SELECT_MATCHING_ITEMS",
        "REACHING": "SELECT_SESSIONS_OF_ITEMS",
        "Ranked": "RankedHit",
        "by_use": "_last_use_rank",
        "find": "find_handles",
        "search": "search_items",
        "_batches": "_ranked_batches",
        "_hit": "_hit_from_row",
    },
    "stores.postgres.planning": {
        "Grown": "PlannedNode",
        "There": "ExistingNode",
        "Plan": "CommitPlan",
        "plan": "plan_commit",
        "_grown": "_plan_nodes",
    },
    "stores.postgres.looking": {
        "SHARED": "LOCK_TENANT_SHARED",
        "ALONE": "LOCK_TENANT_EXCLUSIVE",
        "NEW_TENANT": "INSERT_TENANT",
        "NEW_ROOT": "INSERT_ROOT",
        "TENANT": "SELECT_TENANT_NAME",
        "PLACES": "SELECT_NODES",
        "SESSIONS": "LOCK_SESSIONS",
        "CONVERSATION": "LOCK_CONVERSATION",
        "THESE_LINKS": "LOCK_LINKS",
        "RUN": "LOCK_OPEN_RUN",
        "LOOSE": "SELECT_DETACHED_NODES",
        "Found": "CommitReads",
        "look": "begin_commit",
        "_loose": "_detached_nodes",
        "_is_own": "_is_planned_session",
        "_opening": "_build_begin",
        "_questions": "_build_reads",
        "_half_or_none": "_node_id_or_none",
        "_expected_session": "_check_session_head",
        "_expected_conversation": "_check_conversation_head",
        "_place": "_head_key",
        "_check": "_check_references",
    },
    "stores.postgres.changing": {
        "ITEMS": "INSERT_ITEMS",
        "WORDS": "INSERT_TERMS",
        "NODES": "INSERT_NODES",
        "REFILL": "RESTORE_ERASED_NODES",
        "commit": "apply_transaction",
        "_writes": "_build_writes",
        "_grow": "_build_node_inserts",
        "_keep": "_build_item_inserts",
        "own_number": "_own_id_hash",
        "_array": "_format_term_array",
        "term_numbers": "hash_terms",
        "_links": "_build_link_upserts",
        "_behind": "_nodes_with_own_ids",
    },
    "stores.postgres.collecting": {
        "FREE": "UNREFERENCED_NODE_SQL",
        "COLLECT": "DELETE_UNREFERENCED_PATHS",
        "UNUSED": "SELECT_UNUSED_ITEMS",
        "ERASED": "SELECT_NODE_ITEMS",
        "ERASE": "ERASE_NODE_ITEMS",
        "LEFT_BEHIND": "SELECT_OTHER_NODES_OF_ITEMS",
        "erase": "_erase_items",
        "collect": "delete_unreferenced_nodes",
    },
    "stores.postgres.removing": {
        "TAKE_SESSIONS": "DELETE_SESSIONS",
        "REMEMBER": "INSERT_REMOVED_MARKERS",
        "UNNEEDED": "SELECT_UNNEEDED_LINKS",
        "TAKE_LINKS": "DELETE_LINKS",
        "TAKE_NAMES": "DELETE_MEMBERS",
        "TAKE_CONVERSATIONS": "DELETE_CONVERSATIONS",
        "FORGET_REMOVED": "DELETE_REMOVED_MARKERS",
        "FORGET_REPEATED": "DELETE_UNREFERENCED_JSON",
        "alone": "_begin_exclusive",
        "take_sessions": "_delete_sessions",
        "take_links": "_delete_links",
        "take_conversations": "_delete_conversations",
        "tidy": "_delete_unreferenced_and_commit",
    },
    "stores.postgres.pruning": {
        "PIECE": "MAX_ROWS_PER_BATCH",
        "KEPT": "WITH_RETAINED_SESSIONS",
        "KEPT_RECORDS": "SELECT_RETAINED_RECORDS",
        "CONVERSATIONS": "SELECT_OLD_CONVERSATIONS",
        "SESSIONS": "SELECT_OLD_SESSIONS",
        "LINKS": "SELECT_OLD_LINKS",
        "Choice": "OldRowFinder",
        "conversations": "find_old_conversations",
        "sessions": "find_old_sessions",
        "links": "find_old_links",
        "count": "count_prunable",
        "take_piece": "prune_batch",
    },
    "stores.postgres.upkeep": {
        "AROUND": "ROW_OVERHEAD_BYTES",
        "HOLDINGS": "SELECT_TENANT_STATS",
        "TENANTS": "SELECT_TENANT_NAMES",
        "SIZE": "SELECT_SIZE_BYTES",
        "KINDS": "ROW_KINDS",
        "ABANDONED": "SELECT_ABANDONED_RUNS",
        "FORGET": "DELETE_ENDED_RUNS",
        "FORGET_LEASES": "DELETE_EXPIRED_LEASES",
        "KEEP_SECRET": "INSERT_SECRET",
        "SECRET": "SELECT_SECRET",
        "PostgresUpkeep": "PostgresAdmin",
        "_piece": "_prune_tenant_batch",
        "_holdings": "_tenant_stats_from_row",
    },
    "stores.postgres.examining": {
        "RIGHTS": "TABLE_PRIVILEGES",
        "WAIT_S": "PROBE_TIMEOUT_S",
        "ROLE": "SELECT_ROLE",
        "TABLES": "SELECT_SCHEMA_ACCESS",
        "LACKED": "SELECT_MISSING_PRIVILEGES",
        "examine": "probe_database",
        "_examined": "_probe_connection",
        "_row": "_select_row",
    },
    "stores.postgres.checking": {
        "BATCH": "ROWS_PER_BATCH",
        "TENANTS": "SELECT_TENANTS",
        "COUNTED": "COUNTED_TABLES",
        "ITEMS": "SELECT_ITEMS_TO_CHECK",
        "NODES": "SELECT_NODES_TO_CHECK",
        "REPEATED": "SELECT_JSON_TO_CHECK",
        "REFERENCES": "SELECT_FOREIGN_KEYS",
        "CONVERSATIONS": "SELECT_MEMBERS_TO_CHECK",
        "SESSIONS": "SELECT_SESSIONS_TO_CHECK",
        "PATH": "SELECT_PATH_TO_CHECK",
        "check": "check_database",
        "_Checking": "_DatabaseCheck",
        "_fault_of": "_describe_node_fault",
        "_read": "_decode_valid_item",
        "_has_id": "_has_item_id",
        "_is_record": "_is_session_record",
    },
}

# A protocol's new name is repeated for each class that implements it. A field is also the keyword of its class.
ATTRIBUTES = {
    "stores.contract": {
        "Store.of": "for_tenant",
        "Store.upkeep": "admin",
        "Store.tail": "items_after",
        "Store.outline": "session_stats",
        "Store.answers": "responses_to",
        "Store.family": "related_links",
        "Store.append": "append_events",
        "Store.calls": "agent_calls",
        "Store.find": "find_handles",
        "Store.search": "search_items",
        "Store.lease": "acquire_lease",
        "Store.release": "release_lease",
        "Store.holder": "lease_holder",
        "Store.revision": "data_version",
        "AgentRun.session": "session_id",
        "AgentRun.state": "source_state_hash",
        "AgentCall.run": "run_id",
        "AgentCall.ended": "has_ended",
        "Change.grow": "appends",
        "Change.expect": "expected_session_head",
        "Change.conversation_expect": "expected_conversation_head",
        "Change.erase": "erased_nodes",
        "Change.starts": "started_run_id",
        "Change.ends": "ended_run_id",
        "Change.calls": "agent_calls",
        "Conversation.ids": "item_ids",
        "Outline.items": "item_count",
        "Outline.waiting": "unconfirmed_count",
        "Outline.turns": "turn_count",
        "Outline.first": "first_item",
        "Found.words": "label",
    },
    "stores.upkeep": {
        "Upkeep.check": "check_ready",
        "Upkeep.check_room": "check_disk_space",
        "Upkeep.holdings": "tenant_stats",
        "Upkeep.tenants": "tenant_names",
        "Upkeep.size": "size_bytes",
        "Upkeep.observe": "set_transaction_observer",
        "Upkeep.abandoned": "abandoned_runs",
        "Upkeep.forget_events": "prune_events",
        "Upkeep.secret": "get_or_create_secret",
        "StoreCheck.rows": "row_counts",
        "StoreCheck.sessions": "damaged_sessions",
        "StoreCheck.unchecked": "skipped_reason",
        "CutSession.items": "item_count",
        "CutSession.rest": "rest_name",
        "CutSession.rest_items": "rest_item_count",
        "Recovery.rows": "row_counts",
        "Recovery.whole": "complete_sessions",
        "Recovery.cut": "truncated_sessions",
        "Recovery.lost": "lost_sessions",
        "Recovery.made": "recreated_sessions",
        "Problems._found": "_counts",
        "Holdings.rows": "row_counts",
        "Holdings.bytes": "size_bytes",
        "Holdings.oldest": "oldest_at",
        "Holdings.newest": "newest_at",
    },
    "stores.condition": {
        "FileCondition.schema": "schema_version",
        "FileCondition.known": "latest_schema_version",
        "ServerCondition.place": "location",
        "ServerCondition.version": "server_version",
        "ServerCondition.schema": "schema_version",
        "ServerCondition.known": "latest_schema_version",
        "ServerCondition.may_create": "can_create_schema",
        "ServerCondition.lacking": "missing_privileges",
        "ServerCondition.read_only": "is_read_only",
        "ServerCondition.tls": "uses_tls",
    },
    "stores.leasing": {"Hold.take": "acquire", "Hold._renewing": "_renewal_task"},
    # -- memory
    "stores.memory.store": {
        "MemoryStore.of": "for_tenant",
        "MemoryStore.upkeep": "admin",
        "MemoryStore.tail": "items_after",
        "MemoryStore.outline": "session_stats",
        "MemoryStore.answers": "responses_to",
        "MemoryStore.family": "related_links",
        "MemoryStore.append": "append_events",
        "MemoryStore.calls": "agent_calls",
        "MemoryStore.find": "find_handles",
        "MemoryStore.search": "search_items",
        "MemoryStore.lease": "acquire_lease",
        "MemoryStore.release": "release_lease",
        "MemoryStore.holder": "lease_holder",
        "MemoryStore.revision": "data_version",
        "MemoryStore._mine": "_data",
        "MemoryStore._item": "_decode_item",
        "MemoryStore._by_use": "_sessions_by_use",
        "MemoryStore._known": "_iter_handles",
        "MemoryStore._first_places": "_first_nodes",
    },
    "stores.memory.upkeep": {
        "MemoryUpkeep.check": "check_ready",
        "MemoryUpkeep.check_room": "check_disk_space",
        "MemoryUpkeep.holdings": "tenant_stats",
        "MemoryUpkeep.tenants": "tenant_names",
        "MemoryUpkeep.size": "size_bytes",
        "MemoryUpkeep.observe": "set_transaction_observer",
        "MemoryUpkeep.abandoned": "abandoned_runs",
        "MemoryUpkeep.forget_events": "prune_events",
        "MemoryUpkeep.secret": "get_or_create_secret",
        "MemoryUpkeep._alive": "_has_live_lease",
    },
    "stores.memory.tenant": {
        "Tenant.removed": "removed_sessions",
        "Tenant.runs": "response_runs",
        "Tenant.agents": "agent_runs",
        "Tenant.check": "check_transaction",
        "Tenant._check_heads": "_check_expected_heads",
        "Tenant.make": "apply_transaction",
        "Tenant._place": "_use_number",
        "Tenant._left_behind": "_other_nodes_of_erased_items",
        "Tenant.take_session": "delete_session",
        "Tenant.take_link": "delete_link",
        "Tenant.take_conversation": "delete_conversation",
        "Tenant.tidy": "delete_unreferenced",
        "Tenant.chained": "chained_link_ids",
        "Tenant.reached": "reachable_keys",
        "Tenant.oldest_first": "links_oldest_first",
        "Tenant.called": "items_with_id",
        "Tenant._given": "_items_with_assigned_id",
        "Tenant.words": "first_words_at",
    },
    "stores.memory.tree": {
        "Place.number": "sequence",
        "Place.item": "item_hash",
        "Body.number": "sequence",
        "Body.of": "from_text",
        "Tree.places": "nodes",
        "Tree.bodies": "items",
        "Tree._named": "_hashes_by_id",
        "Tree._needs": "_reference_counts",
        "Tree._loose": "_unchecked_nodes",
        "Tree._made": "_last_sequence",
        "Tree.walk": "walk_to_root",
        "Tree.plan": "plan_nodes",
        "Tree.length": "path_length",
        "Tree.plant": "insert_nodes",
        "Tree._keep": "_insert_item",
        "Tree.move": "replace_references",
        "Tree.empty": "erase_item",
        "Tree.named": "items_with_own_id",
        "Tree.beginning": "find_node_by_prefix",
        "Tree.sweep": "delete_unreferenced_nodes",
    },
    "stores.memory.running": {
        "Runs.open": "open_response_ids",
        "Runs.one": "require_open",
        "Runs.drop": "delete",
        "Runs.texts": "event_texts",
        "Runs.forget": "prune",
    },
    "stores.memory.agents": {
        "AgentRuns.expect": "check_revision",
        "AgentRuns.check": "check_references",
        "AgentRuns.make": "apply_transaction",
        "AgentRuns.run": "get_run",
        "AgentRuns.newest_first": "runs_newest_first",
        "AgentRuns.calls": "list_calls",
        "AgentRuns.drop": "delete_runs_of_session",
        "AgentRuns.texts": "stored_texts",
    },
    # -- sqlite
    "stores.sqlite.store": {
        "SqliteStore.of": "for_tenant",
        "SqliteStore.upkeep": "admin",
        "SqliteStore.tail": "items_after",
        "SqliteStore.outline": "session_stats",
        "SqliteStore.answers": "responses_to",
        "SqliteStore.family": "related_links",
        "SqliteStore.append": "append_events",
        "SqliteStore.calls": "agent_calls",
        "SqliteStore.find": "find_handles",
        "SqliteStore.search": "search_items",
        "SqliteStore.lease": "acquire_lease",
        "SqliteStore.release": "release_lease",
        "SqliteStore.holder": "lease_holder",
        "SqliteStore.revision": "data_version",
    },
    "stores.sqlite.upkeep": {
        "SqliteUpkeep.check": "check_ready",
        "SqliteUpkeep.check_room": "check_disk_space",
        "SqliteUpkeep.holdings": "tenant_stats",
        "SqliteUpkeep.tenants": "tenant_names",
        "SqliteUpkeep.size": "size_bytes",
        "SqliteUpkeep.observe": "set_transaction_observer",
        "SqliteUpkeep.abandoned": "abandoned_runs",
        "SqliteUpkeep.forget_events": "prune_events",
        "SqliteUpkeep.secret": "get_or_create_secret",
    },
    "stores.sqlite.database": {
        "Database.observe": "observer",
        "Database._wait_s": "_busy_timeout_s",
        "Database._nothing": "_empty_db",
        "Database._opened": "_file_identity",
        "Database._log": "_wal_identity",
        "Database._lane": "_worker",
        "Database._ran": "_applied_migrations",
        "Database._done": "_run",
        "Database._together": "_run_batch",
        "Database._in_one": "_run_in_one_transaction",
        "Database._alone": "_run_one",
        "Database._read_only": "_run_on_full_disk",
        "Database._on_nothing": "_run_on_empty_store",
        "Database._is_moved": "_is_file_replaced",
        "Database._leave": "_close_replaced_file",
        "Database.size": "size_bytes",
        "Database.check_room": "check_disk_space",
        "Database._prepare": "_configure",
        "Database._patiently": "_retry_while_busy",
    },
    "stores.sqlite.lane": {
        "Waiting.writes": "is_write",
        "Waiting.create": "creates_file",
        "Waiting.told": "future",
        "Waiting.wrong": "error",
        "Lane.done": "run",
        "Lane.last": "shut_down",
        "Lane._work": "_run_jobs",
        "Lane._thread": "_executor",
        "Lane._busy": "_is_busy",
        "Lane._drain": "_process_queue",
        "Lane._taken": "_next_batch",
    },
    "stores.sqlite.tenant": {
        "Tenant.n": "tenant_number",
        "Tenant.numbers": "rowids",
        "Tenant.known": "find",
        "Tenant.made": "find_or_create",
        "Tenant.all": "fetch_all",
        "Tenant.row": "fetch_row",
        "Tenant.one": "fetch_value",
        "Tenant.run": "execute",
        "Tenant.add": "execute_insert",
        "Tenant.number": "find_rowid",
        "Tenant.insert": "insert_row",
        "Tenant.update": "update_row",
        "Tenant.delete": "execute_delete",
    },
    "stores.sqlite.agents": {"There.n": "rowid"},
    "stores.sqlite.records": {
        "Recorded.n": "rowid",
        "Recorded.key": "head_key",
        "Recorded.linked": "link_id",
        "Recorded.bare": "is_link_placeholder",
        "Standing.n": "rowid",
        "Standing.key": "head_key",
    },
    "stores.sqlite.checking": {
        "_Row.n": "rowid",
        "_Row.above": "parent_key",
        "_Checking.result": "run",
        "_Checking._check_ours": "_check_header",
        "_Checking._own_rules": "_check_rows",
        "_Checking._step": "_run_step",
        "_Checking._all": "_iter_rows",
        "_Checking._file": "_check_integrity",
        "_Checking._references": "_check_references",
        "_Checking._count": "_count_rows",
        "_Checking._items": "_check_items",
        "_Checking._nodes": "_check_nodes",
        "_Checking._fault_of": "_describe_node_fault",
        "_Checking._mixed": "_check_tenant_isolation",
        "_Checking._key_of": "_primary_key",
        "_Checking._records": "_check_records",
        "_Checking._conversations": "_check_conversations",
        "_Checking._search": "_check_search_index",
        "_Checking._affected": "_damaged_sessions",
        "_Checking._is_whole": "_is_path_intact",
        "_Checking._found": "_problems",
        "_Checking._place": "_database_file",
        "_Checking._rows": "_row_counts",
    },
    "stores.sqlite.page_reader": {
        "PageReader.kind": "page_kind",
        "PageReader.children": "child_pages",
        "PageReader.free": "free_pages",
        "PageReader.count": "page_count",
        "PageReader._size": "_file_size_bytes",
        "PageReader._log": "_wal",
        "PageReader._in_log": "_wal_offsets",
        "PageReader._max_table": "_max_table_payload_bytes",
        "PageReader._max_index": "_max_index_payload_bytes",
        "PageReader._min": "_min_payload_bytes",
        "PageReader._pointers": "_cell_offsets",
        "PageReader._cell": "_parse_cell",
        "PageReader._payload": "_read_payload",
        "PageReader._found_size": "_detect_page_size",
        "PageReader._score": "_score_page_size",
        "PageReader._read_log": "_read_wal",
    },
    "stores.sqlite.recover": {
        "_Reading._owner": "_tree_of_page",
        "_Reading._roots": "_find_tree_roots",
        "_Reading._walk": "_assign_tree_pages",
        "_Reading._tree": "_iter_tree_pages",
        "_Reading._take": "_copy_page_rows",
        "_Reading._add": "_insert_row",
        "_Broken.kept": "last_intact_node",
        "_Broken.items": "remaining_items",
        "_Broken.total": "item_count",
        "_Repair._root": "_find_or_create_root",
        "_Repair._is_marked": "_has_stored_hash",
        "_Repair._merge": "_merge_nodes",
        "_Repair._break": "_record_broken_node",
        "_Repair._some_route": "_find_or_create_unknown_route",
        "_Repair._report": "_report_session",
        "_Repair._history": "_recover_history",
        "_Repair._way": "_select_path",
        "_Repair._item": "_recover_item",
        "_Repair._session": "_insert_session",
        "_Repair._free_name": "_unused_session_name",
        "_Repair._name_items": "_assign_item_ids",
        "_Repair._drop_unfit": "_delete_invalid_rows",
        "_Repair._t": "_tenant_without_cache",
        "_Repair._name": "_tenant_name",
        "_Repair._there": "_find_rowid",
        "_Repair._run": "_execute",
        "_Repair._all": "_fetch_all",
        "_Repair._one": "_fetch_value",
        "_Repair._each": "_iter_rows",
        "_Repair._texts": "_invalid_texts",
        "_Repair._whole": "_complete",
        "_Repair._cut": "_truncated",
        "_Repair._made": "_recreated",
    },
    # -- postgres
    "stores.postgres.store": {
        "PostgresStore.of": "for_tenant",
        "PostgresStore.upkeep": "admin",
        "PostgresStore.tail": "items_after",
        "PostgresStore.outline": "session_stats",
        "PostgresStore.answers": "responses_to",
        "PostgresStore.family": "related_links",
        "PostgresStore.append": "append_events",
        "PostgresStore.calls": "agent_calls",
        "PostgresStore.find": "find_handles",
        "PostgresStore.search": "search_items",
        "PostgresStore.lease": "acquire_lease",
        "PostgresStore.release": "release_lease",
        "PostgresStore.holder": "lease_holder",
        "PostgresStore.revision": "data_version",
        "PostgresStore._commit": "_try_commit",
    },
    "stores.postgres.upkeep": {
        "PostgresUpkeep.check": "check_ready",
        "PostgresUpkeep.check_room": "check_disk_space",
        "PostgresUpkeep.holdings": "tenant_stats",
        "PostgresUpkeep.tenants": "tenant_names",
        "PostgresUpkeep.size": "size_bytes",
        "PostgresUpkeep.observe": "set_transaction_observer",
        "PostgresUpkeep.abandoned": "abandoned_runs",
        "PostgresUpkeep.forget_events": "prune_events",
        "PostgresUpkeep.secret": "get_or_create_secret",
        "PostgresUpkeep._take": "_prune_kind",
        "PostgresUpkeep._ask": "_run_statements",
    },
    "stores.postgres.database": {
        "Database.observe": "observer",
        "Database.place": "location",
        "Database.tenants": "known_tenants",
        "Database._size": "_pool_size",
        "Database._wait_s": "_connect_timeout_s",
        "Database._answer_s": "_transaction_timeout_s",
        "Database._opening": "_open_lock",
        "Database._once": "_run_once",
        "Database.alone": "direct_connection",
        "Database.connection": "pooled_connection",
        "Database._in_time": "_time_limit",
        "Database._given": "_check_out",
        "Database._open": "_open_pool",
        "Database._made": "_create_pool",
    },
    "stores.postgres.tenant": {
        "Tenant.n": "tenant_number",
        "Tenant.of": "from_name",
        "Tenant.ask": "statement",
        "Tenant.together": "run_pipeline",
        "Tenant.all": "fetch_all",
        "Tenant.row": "fetch_row",
        "Tenant.one": "fetch_value",
    },
    "stores.postgres.planning": {
        "Grown.hash": "item_id",
        "There.empty": "is_empty",
        "Plan.change": "transaction",
        "Plan.grown": "planned_nodes",
        "Plan.kept": "referenced_nodes",
        "Plan.asked": "keys_to_read",
        "Plan.bases": "base_node_ids",
        "Plan.base": "base_key",
        "Plan.behind": "planned_path",
        "Plan.check": "check_nodes",
        "Plan._check": "_check_node",
    },
    "stores.postgres.looking": {
        "Found.places": "existing_nodes",
        "Found.links": "link_statuses",
        "Found.session": "session_exists",
        "Found.conversation": "conversation_head",
        "Found.behind": "conversation_nodes",
        "Found.loose": "detached_nodes",
    },
    "stores.postgres.checking": {
        "_Checking._bad": "_damaged_ids",
        "_Checking.found": "problems",
        "_Checking.rows": "row_counts",
        "_Checking.sessions": "damaged_sessions",
        "_Checking._tenant": "_check_tenant",
        "_Checking._references": "_check_references",
        "_Checking._conversations": "_check_conversations",
        "_Checking._is_whole": "_is_path_intact",
        "_Checking._all": "_fetch_all",
        "_Checking._batches": "_iter_rows",
    },
}

PARAMETERS = {
    "stores.contract": {
        "Store.commit.change": "transaction",
        "Store.answers.saw": "input_heads",
        "Store.agent_runs.session": "session_id",
        "Store.agent_runs.state": "source_state_hash",
        "Store.lease.instead_of": "dead_holder",
        "Store.search.words": "query",
    },
    "stores.memory.store": {
        "MemoryStore.commit.change": "transaction",
        "MemoryStore.answers.saw": "input_heads",
        "MemoryStore.agent_runs.session": "session_id",
        "MemoryStore.agent_runs.state": "source_state_hash",
        "MemoryStore.lease.instead_of": "dead_holder",
        "MemoryStore.search.words": "query",
    },
    "stores.sqlite.store": {
        "SqliteStore.commit.change": "transaction",
        "SqliteStore.answers.saw": "input_heads",
        "SqliteStore.agent_runs.session": "session_id",
        "SqliteStore.agent_runs.state": "source_state_hash",
        "SqliteStore.lease.instead_of": "dead_holder",
        "SqliteStore.search.words": "query",
    },
    "stores.postgres.store": {
        "PostgresStore.commit.change": "transaction",
        "PostgresStore.answers.saw": "input_heads",
        "PostgresStore.agent_runs.session": "session_id",
        "PostgresStore.agent_runs.state": "source_state_hash",
        "PostgresStore.lease.instead_of": "dead_holder",
        "PostgresStore.search.words": "query",
        "PostgresStore._commit.alone": "exclusive",
    },
    "stores.upkeep": {
        "Upkeep.observe.observe": "observer",
        "Upkeep.prune.before": "cutoff",
        "Upkeep.prune.dry": "dry_run",
        "Upkeep.secret.fresh": "new_secret",
    },
    "stores.memory.upkeep": {
        "MemoryUpkeep.observe.observe": "observer",
        "MemoryUpkeep.prune.before": "cutoff",
        "MemoryUpkeep.prune.dry": "dry_run",
        "MemoryUpkeep.secret.fresh": "new_secret",
    },
    "stores.sqlite.upkeep": {
        "SqliteUpkeep.observe.observe": "observer",
        "SqliteUpkeep.prune.before": "cutoff",
        "SqliteUpkeep.prune.dry": "dry_run",
        "SqliteUpkeep.secret.fresh": "new_secret",
    },
    "stores.postgres.upkeep": {
        "PostgresUpkeep.observe.observe": "observer",
        "PostgresUpkeep.prune.before": "cutoff",
        "PostgresUpkeep.prune.dry": "dry_run",
        "PostgresUpkeep.secret.fresh": "new_secret",
    },
    "stores.memory.pruning": {"prune.before": "cutoff", "prune.dry": "dry_run", "prune.mine": "tenant"},
    "stores.sqlite.leases": {"take.instead_of": "dead_holder"},
    "stores.postgres.leases": {"take.instead_of": "dead_holder"},
    "stores.sqlite.links": {"_oldest_first.before": "with_clause"},
    "stores.postgres.links": {"_oldest_first.before": "with_clause"},
    "stores.sqlite.database": {"Database._transaction.writes": "is_write"},
    "stores.postgres.database": {
        "Database.__init__.size": "pool_size",
        "Database.__init__.wait_s": "connect_timeout_s",
        "Database.__init__.answer_s": "transaction_timeout_s",
        "Database.run.however_long": "no_time_limit",
        "Database._once.however_long": "no_time_limit",
    },
    "stores.postgres.changing": {"commit.alone": "exclusive", "commit.known": "tenant_exists"},
    "stores.postgres.looking": {
        "look.alone": "exclusive",
        "look.known": "tenant_exists",
        "_opening.alone": "exclusive",
        "_opening.known": "tenant_exists",
    },
    "stores.postgres.records": {
        "put_session.there": "exists",
        "put_conversation.old": "old_head",
        "put_conversation.behind": "nodes",
        "put_conversation.further": "is_extended",
    },
    "stores.sqlite.recover": {"_Repair._session.reported": "is_reported", "_Repair._session.own": "session_id"},
}

MOVES = {
    # sqlite.store imports upkeep at every start; `examining` would make it load `checking` (418 lines) as well, which only
    # doctor, check, backup and recover need. So what looks for damage is one module in each backend: `check`.
    "stores.sqlite.admin": ["stores.sqlite.upkeep"],
    "stores.sqlite.check": ["stores.sqlite.checking", "stores.sqlite.examining"],
    "stores.postgres.admin": ["stores.postgres.upkeep"],
    "stores.postgres.check": ["stores.postgres.checking", "stores.postgres.examining"],
    # A commit is planned, read for and written: `planning` is used by that and by nothing in `tree`. Removal is followed by
    # pruning, as in sqlite.gc, which lets the steps that both share be private.
    "stores.postgres.tree": ["stores.postgres.tree"],
    "stores.postgres.commit": [
        "stores.postgres.changing",
        "stores.postgres.planning",
        "stores.postgres.looking",
        "stores.postgres.collecting",
    ],
    "stores.postgres.gc": ["stores.postgres.removing", "stores.postgres.pruning"],
    # `connection` would be 860 lines with two subjects: how a job gets a transaction, and what rows and columns the job sees.
    # All row modules need the second and only `store`, `admin` and `check` the first. (Not called `rows`: a common local name.)
    "stores.sqlite.tenant_rows": ["stores.sqlite.tenant", "stores.sqlite.names"],
    "stores.sqlite.connection": [
        "stores.sqlite.database",
        "stores.sqlite.lane",
        "stores.sqlite.faults",
        "stores.sqlite.schema",
        "stores.sqlite.filling",
        "stores.sqlite.traces",
    ],
    "stores.postgres.tenant_rows": ["stores.postgres.tenant", "stores.postgres.names", "stores.postgres.bodies"],
    "stores.postgres.connection": [
        "stores.postgres.database",
        "stores.postgres.faults",
        "stores.postgres.reaching",
        "stores.postgres.schema",
    ],
}

LOCAL = {
    ("stores.base", "pathlib.Path"): "FilePath",
}
"""Of plan.py: `Path` in stores.base is the path of a history."""

DOCS = {
    "stores": """Stores: where sessions, histories and runs are kept.

Read `base` first: it has the `Store` contract and the `Transaction` that every write is. `memory` is the
shortest implementation, `sqlite` the default, `postgres` the one for several machines. `factory` opens a
store by its URL.
""",
    "stores.base": """The store contract, and the rules that every store applies.

All writes go through `Store.commit`, which applies one `Transaction` completely or not at all; a crash
leaves the state before it or after it. Items are immutable and stored once per tenant. Failures are raised
as `StoreFault`, a transaction based on an outdated head as `Conflict`. `StoreAdmin` has the operations on a
whole database, across tenants: migrations, statistics, pruning.
""",
    "stores.codec": """Encoding of records, JSON and search terms, the same in every store.

Links and sessions are columns that queries use, plus JSON. The usage of a link is stored as its shape, which
links share, and its integers. JSON keeps key order and integers exactly, and is always valid UTF-8.
A change of `tokenize`, or of the text that it gets, needs a migration that rebuilds the search index.
""",
    "stores.factory": """Open, probe, check, back up and recover a store by its URL.

URLs are "memory", "sqlite:PATH" and "postgresql://...". The module of a backend, and its driver, is imported
only when a URL needs it. A database is created by the first write, never by a read.
""",
    "stores.lease": """A lease that renews itself until it is released.

Leases expire on the store's clock. The lease of a process that died on this machine is taken over at once,
without waiting for it to expire.
""",
    "stores.memory": """A store in memory, and the shortest complete implementation of the contract.

No method awaits anything, so a transaction cannot be interrupted: it is checked as a whole, then applied.
Each node has a reference count, from its children and from the records that refer to it; a node without
references is deleted at once. Records and JSON are copied when they enter and when they leave.
""",
    "stores.sqlite": """The default store: one SQLite file, one connection in one worker thread.

Read `migrations/0001_tree.sql` first, then `connection`, `tree` and `store`.
""",
    "stores.sqlite.connection": """The connection to the file: worker thread, transactions, errors and migrations.

Every job is a function of the connection. It runs in the worker thread, in a transaction: BEGIN for reads,
BEGIN IMMEDIATE for writes. Jobs that are queued together share one transaction; if one of them fails, each
is run again in its own, so a job may run twice. `inline` runs jobs in the caller's thread, without an event
loop. The file is created by the first write; until then, reads find an empty store.
""",
    "stores.sqlite.tenant_rows": """The rows of one tenant: statements, rowids, and the index of ids.

A `TenantConnection` lives as long as one job and caches the rowids that the job found. The table `names` has four
bytes of the hash of each item id and conversation id, so every match is verified against the row that it leads to.
""",
    "stores.sqlite.tree": """Items and nodes as rows.

An item is stored once per tenant, a node is its rowid, key, parent and item. A caller that removes a reference
to a node passes the node to `delete_unreferenced_nodes` in the same transaction.
""",
    "stores.sqlite.records": """Sessions, conversations and links as rows.

JSON that many links repeat (parameters; the route: model, strategy, scope, conversation) is stored once in
`repeated`. A link or session that others refer to but that is not stored, or was removed, is a row with only
an id. A conversation stores only the item ids that it assigned itself.
""",
    "stores.sqlite.runs": """Response runs and their events, agent runs and their tool calls, leases.

A run ends once: the second writer gets `Conflict`, and nothing that it sent is stored. Leases expire by the
clock of the machine that holds the file.
""",
    "stores.sqlite.search": """Find records by the beginning of a handle, and items by words.

The full-text index holds only terms, so each match is verified against the item's text. A session matches
when its record, or a link that it made, has the item on its path.
""",
    "stores.sqlite.store": """`Store` over one SQLite file.

Each method is one job for the connection, over the rows of one tenant. `apply_transaction` compares the heads
first, so an outdated writer gets `Conflict` before anything is written, and deletes unreferenced nodes last.
""",
    "stores.sqlite.gc": """Remove records, and delete what only they referenced.

A removal is one transaction. Pruning runs in batches of some hundred rows, each a transaction, so that other
writers do not wait for all of it: sessions first, then links, then conversations. SQLite keeps deleted bytes in
the file, so a removal requests a VACUUM, which runs when the file is closed.
""",
    "stores.sqlite.admin": """`StoreAdmin` over one SQLite file: statistics, pruning, abandoned runs, secrets.""",
    "stores.sqlite.check": """Check a database file, and probe whether it can be used. Nothing is written.

SQLite's own checks run first, then the rules that every row must satisfy. A file without a log is opened as
immutable, so that reading creates no files; if it was changed meanwhile, the check is repeated beside the writer.
""",
    "stores.sqlite.backup": """Copy a database into a new file while other processes write to it.

The copy is built in an unnamed file, synced, checked and then linked to its name. An existing file is never
overwritten, and a killed process leaves no file behind (on macOS a temporary one).
""",
    "stores.sqlite.recover": """Copy every readable row of a damaged file into a new database.

The file is read page by page, so neither its header nor its schema has to be intact. Keys are hashes of the
path before them, so a changed item or node is noticed. A session whose history is broken is cut after its last
intact node; the items after the break become a session of their own.
source: https://www.sqlite.org/fileformat2.html
""",
    "stores.postgres": """A store in PostgreSQL, for several processes and machines.

Read `migrations/0001_tree.sql` first, then `connection` and `commit`. No lock, setting or prepared statement
outlives a transaction, so a transaction pooler may stand in between.
""",
    "stores.postgres.tenant_rows": """The rows of one tenant: statements, and values as columns hold them.

In every statement `$1` is the tenant's number. Statements that do not need each other's results are sent as one
pipeline, because round trips cost most. Names are escaped where text columns cannot hold them, so that equal
beginnings stay equal. Bodies are compressed with zlib where that makes them shorter.
""",
    "stores.postgres.connection": """Connection pool, errors and migrations.

No statement is prepared on the server. A transaction that meets a concurrent writer is repeated as a whole; one
that exceeds the time limit has its socket shut down. Error messages never contain the URL.
""",
    "stores.postgres.tree": """Paths and items, read from the tree of nodes.

Queries walk to the root with `LATERAL ... LIMIT 1` per node: without table statistics the planner would
otherwise read the whole table.
""",
    "stores.postgres.records": """Sessions, conversations and links as rows.

JSON that many links repeat is stored once in `repeated`. Links refer to their parent by id, not by row: it may
be a response of another endpoint. Functions named `build_` return statements, for the pipeline of a commit.
""",
    "stores.postgres.commit": """Apply a transaction in two round trips.

Plan: keys follow from items, so all nodes are known before the database is asked. Read: begin, lock the tenant
and read what the plan needs. Write: insert in a fixed order, so that writers do not deadlock, and commit. Tenant
locks are shared; a transaction that may leave nodes unreferenced is repeated with an exclusive lock.
""",
    "stores.postgres.runs": """Response runs and their events, agent runs and their tool calls, leases.

A run ends once: the second writer gets `Conflict`. Events are stored in the batches that they arrive in. Leases
expire by the clock of the database.
""",
    "stores.postgres.search": """Find records by the beginning of a handle, and items by words.

The index holds hashes of terms, so each match is verified against the item's text. Shorter items are read
first; results are ordered by phrase density.
""",
    "stores.postgres.store": """`Store` over one PostgreSQL database.

Each method is one job on a pooled connection, over the rows of one tenant. A commit is tried with a shared lock
first, then with an exclusive one.
""",
    "stores.postgres.gc": """Remove records, and delete what only they referenced.

A removal is one transaction with an exclusive lock of the tenant. Pruning runs in batches, so that other
writers can go in between: conversations first, then sessions, then links.
""",
    "stores.postgres.admin": """`StoreAdmin` over one PostgreSQL database: migrations, statistics, pruning, secrets.""",
    "stores.postgres.check": """Check the rows of a database, and probe server, role and privileges. Nothing is written.

Rows are read in one read-only transaction, some hundred at a time in primary-key order, so that they are
consistent and memory does not grow with the database.
""",
}

NOTES = """
Same name in several backends, on purpose: sqlite and postgres implement the same task in modules of the same purpose, so
"public twice" that lists only stores.sqlite.* and stores.postgres.* is right (one meaning, two implementations). Functions of
postgres that only build statements for the pipeline of a commit are called build_*; sqlite's twins execute: upsert_*, delete_*.
Reads of rows are select_*, so they never meet load_*/get_* of the packages above.

For the script
- A dataclass or NamedTuple field in ATTRIBUTES is also the keyword of its class, of dataclasses.replace and of _replace. Tests
  have stores of their own (tests/engine/fated.py FatedStore and others): the Store and StoreAdmin names apply to them too.
- lane.Result -> JobResult: its TypeVar string has to become "JobResult", else mypy complains. By hand: the second TypeVar of
  sqlite.connection (database.Result) goes, JobResult serves both.
- LOCAL: pathlib.Path in stores.base is FilePath (Path there is the path of a history). Add it to plan.py.
- DOCS has "stores", "stores.sqlite" and "stores.postgres": docstrings of the packages' __init__, which move.py now fills with
  the folder's name.
- After the move write `from convo.stores.base import ...` instead of `base.X`, and `from ...tenant_rows import escape_name`
  instead of `tenant_rows.escape_name`: the old prefixes (rules., names.) said something, the new ones do not. In
  postgres/looking a local `base` shadows the module (ruff F402).
- Sweep by hand: parameter `t` -> `tenant` (164 functions), locals and parameters `change` -> `transaction`, `grown`, `told`,
  `there` -> `existing`, `one`, `saw`. The loop variable `base` of _detached_nodes -> `base_id`.
- A dry run of move.py with plan.py, these MOVES (before the split of tenant_rows), NAMES and LOCAL reported nothing for
  stores; all modules but sqlite.check, backup and recover imported. Those three import convo.config.settings, which is a
  circle in plan.py: config.settings -> config.credentials -> config.schema -> config.settings. The part config must break it.

Names that stay although they look old
- Fields `sessions`, `responses`, `conversations` of Pruned (PruneResult): ui/holdings.py reads them by getattr. Fields of
  sqlite.pruning.Old: they equal the keys of FINDERS (`_replace(**{kind: ...})`).
- `holder` of a lease (also in errors.Busy): "lease holder" is the usual term; WORDS.md forbids it for the strategy only.
- SessionRow.mark, .written, .used and all SQL identifiers: names of columns, frozen. `repeated`, `members`, `names`,
  `traces`, `removed` are tables; functions over them say what is meant (intern_json, assigned ids, index, vacuum request).
- AgentRun.status values, StoreProblem.code, HandleMatch.kind, keys of row_counts: stored or printed.
- Store.path, session, sessions, link, links, conversation, conversation_links, item, events, agent_run, agent_runs, remove_*.

For other parts
- history: Link.saw, Link.session, Link.sent, Session.mark, .written, .use are yours. I call them input head, unconfirmed,
  and use number in derived names (responses_to(*input_heads), unconfirmed_count). If Link.session becomes session_id, it
  agrees with AgentRun.session_id. StoreProblem.example and code stay.
- cli: Parts(partitions, above)._asdict() is passed to store_schema_sql(partitions=, above=). `above` is a bad name:
  rename to `after_migration` in the SAME step in cli.storing.Parts and in open.schema_sql, postgres.schema.schema_sql. I left it.
- cli/endpoints: HandleMatch.label was Found.words; Holdings.bytes is TenantStats.size_bytes; JSON keys stay as they are.
- runtime/config: check_writable and PRIVATE_FILE (config.places) belong in runtime, which has PRIVATE_FILE already: a store
  should not load the settings module. It also breaks the circle above for stores.

Duplicates to merge
- sqlite.tree._raw (_short_hash) and sqlite.checking.short_hash; use the public one, placed in tenant_rows.
- ROUTE_CONVERSATION_INDEX in sqlite.names and sqlite.checking: import it. Row in sqlite.recover (RecoveredRow): use tenant_rows.Row.
- _is_record in sqlite.checking, sqlite.recover (also checks the strategy) and postgres.checking: one is_valid_session_record
  beside decode_session in stores.codec, with the stricter rule if the contract tests agree.
- _place (_use_number) of memory and sqlite is one rule: move it to stores.base. BEHIND_ALL of both search modules too.
- memory.age (_link_created_at): inline as attrgetter("created_at").
- memory.agents._own, tenant.fresh: both "a copy that shares nothing", keep one deep copy by JSON.

Inline (one caller, one line)
- stores.open._file; sqlite.records._metadata; postgres.looking._half_or_none; postgres.searching._hit; postgres.upkeep._piece
  (partial over a lambda); postgres.examining._examined into examine; postgres.changing._array; rules.check_names into
  iter_stored_names as a loop; verbatim.loads is json.loads: keep only if decode_json stays the seam for another codec.
- postgres.faults._store_fault into fault as one table of (error classes, function), as sqlite has ERRORS_BY_CODE.
- rules' five error factories could be subclasses of Conflict/NotFound; then raise reads as a class. Not needed for the rename.

To decide by a person
- Transaction (names.md) names a frozen value; the words `BEGIN ... COMMIT` transaction occur beside it in both backends.
  Alternative: CommitRequest. I followed names.md.
- stores.sqlite.recover is 1073 lines with the page reader. PageReader is a complete subject of its own (the file format) with
  one class as its door; keeping `stores.sqlite.page_reader` as a module would read better. I left plan.py as it is.
"""
