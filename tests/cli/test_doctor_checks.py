"""The diagnoses of `convo doctor`: the whole finding for each set of facts."""

from pathlib import Path

import pytest

from convo.cli.doctor_checks import (
    EncryptionKeyFacts,
    ExtrasFacts,
    FolderFacts,
    LocalModelFacts,
    ModelFacts,
    OllamaFacts,
    ProviderKeyFacts,
    ServeFacts,
    ServerFacts,
    SettingsFacts,
    StoreFacts,
    TerminalFacts,
    VersionFacts,
    diagnose_encryption_key,
    diagnose_extras,
    diagnose_folders,
    diagnose_keys,
    diagnose_local_model,
    diagnose_model,
    diagnose_network,
    diagnose_ollama,
    diagnose_serve,
    diagnose_settings,
    diagnose_store,
    diagnose_terminal,
    diagnose_versions,
)
from convo.config.sections import Provider
from convo.config.settings import ModelChoice, ModelName, ServeSettings
from convo.config.storage import Storage, StorageType
from convo.config.trust import ProjectNotice
from convo.config.values import BUILT_IN_SOURCE, Layer, Secret, SettingSource
from convo.stores.base import FileHealth, ServerHealth
from convo.terminal.report_views import CheckResult, make_error_result, make_ok_result, make_warning_result
from convo.terminal.terminal import DisplayOptions

FLAG = SettingSource(Layer.FLAG, "--store")


def test_the_versions_are_on_one_line() -> None:
    assert diagnose_versions(VersionFacts("1.2.3", "3.11.9", "Linux x86_64")) == make_ok_result(
        "1.2.3, Python 3.11.9, Linux x86_64", brief="1.2.3, Python 3.11.9"
    )


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (SettingsFacts([]), make_ok_result("all values are defaults; no file or variable sets one")),
        (SettingsFacts(["CONVO_MODEL", "/w/.convo.toml"]), make_ok_result("CONVO_MODEL, /w/.convo.toml")),
        (
            SettingsFacts(["CONVO_MODEL"], ProjectNotice(Path("/w/.convo.toml"), "/w/.convo.toml is not trusted")),
            make_warning_result("/w/.convo.toml is not trusted", "convo config trust"),
        ),
        (
            SettingsFacts([], unused=["a has no effect"]),
            make_warning_result("a has no effect", "correct the name, or convo config unset KEY"),
        ),
        (
            SettingsFacts([], compact_at=60),
            make_warning_result(
                "compact_at = 60 is 60 tokens and not 60 %, so that a chat is compacted before nearly every request",
                "convo config set compact_at 0.6",
            ),
        ),
    ],
)
def test_settings(facts: SettingsFacts, result: CheckResult) -> None:
    assert diagnose_settings(facts) == result


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (FolderFacts([Path("/a"), Path("/b")]), make_ok_result("writable: /a, /b", brief="writable")),
        (
            FolderFacts([Path("/a"), Path("/b"), Path("/c")], [Path("/a"), Path("/c")]),
            make_warning_result("other users of this machine can access /a /c", "chmod 700 /a /c"),
        ),
    ],
)
def test_folders(facts: FolderFacts, result: CheckResult) -> None:
    assert diagnose_folders(facts) == result


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (
            TerminalFacts(DisplayOptions(30, has_box_chars=False), "vt100", "ascii"),
            make_warning_result(
                "the encoding is ascii: other characters are replaced by ASCII",
                "export LC_ALL=C.UTF-8, or PYTHONUTF8=1",
            ),
        ),
        (
            TerminalFacts(DisplayOptions(), "xterm", "utf-8"),
            make_ok_result("stdout is not a terminal: plain text, no truncation, no color"),
        ),
        (
            TerminalFacts(DisplayOptions(39), "xterm", "utf-8"),
            make_warning_result(
                "the terminal has 39 columns; tables are truncated", "make it at least 40 columns wide"
            ),
        ),
        (
            TerminalFacts(DisplayOptions(40, has_color=True), "xterm", "utf-8"),
            make_ok_result("xterm, 40 columns, color, utf-8"),
        ),
        (
            TerminalFacts(DisplayOptions(80), "", "utf-8"),
            make_ok_result("TERM is not set, 80 columns, no color (NO_COLOR, or TERM is dumb), utf-8"),
        ),
    ],
)
def test_the_terminal(facts: TerminalFacts, result: CheckResult) -> None:
    assert diagnose_terminal(facts) == result


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (
            ExtrasFacts({"serve": [], "tokens": []}),
            make_ok_result("installed: serve, tokens", brief="2 installed"),
        ),
        (
            ExtrasFacts({"mcp": ["mcp"], "serve": [], "tokens": ["toktok"]}),
            make_ok_result(
                "installed: serve; not installed: mcp, tokens",
                "pip install 'convo-state[mcp,tokens]'",
                brief="1 installed, 2 not installed",
            ),
        ),
        (
            ExtrasFacts({"tokens": ["toktok"]}),
            make_ok_result(
                "installed: none; not installed: tokens",
                "pip install 'convo-state[tokens]'",
                brief="0 installed, 1 not installed",
            ),
        ),
    ],
)
def test_optional_packages(facts: ExtrasFacts, result: CheckResult) -> None:
    assert diagnose_extras(facts) == result


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        ([], make_ok_result("set: none; not set: none", brief="set: none")),
        (
            [
                ProviderKeyFacts("openai", "OPENAI_API_KEY", is_set=True),
                ProviderKeyFacts("azure", "/keys/azure", is_set=True),
                ProviderKeyFacts("groq", "GROQ_API_KEY", is_set=False),
                ProviderKeyFacts("mine", "MINE_KEY", is_set=False),
            ],
            make_ok_result(
                "set: OPENAI_API_KEY (openai), /keys/azure (azure); not set: GROQ_API_KEY (groq), MINE_KEY (mine)",
                brief="set: OPENAI_API_KEY, /keys/azure",
            ),
        ),
        (
            [
                ProviderKeyFacts("openai", "/keys/a", is_set=True, is_exposed=True),
                ProviderKeyFacts("azure", "/keys/b", is_set=True),
                ProviderKeyFacts("groq", "/keys/c", is_set=True, is_exposed=True),
            ],
            make_warning_result(
                "other users of this machine can access the key in /keys/a /keys/c", "chmod 600 /keys/a /keys/c"
            ),
        ),
        (
            [
                ProviderKeyFacts("openai", "/keys/a", is_set=True, is_exposed=True),
                ProviderKeyFacts("groq", "GROQ_API_KEY", is_set=True, problem="it is too long"),
            ],
            make_error_result("it is too long", "export GROQ_API_KEY=..., with the key as the provider shows it"),
        ),
        (
            [ProviderKeyFacts("groq", "/keys/groq", is_set=True, problem="it is too long")],
            make_error_result("it is too long", "convo config key set groq --file"),
        ),
        (
            [ProviderKeyFacts("groq", "the keyring", is_set=True, problem="it is too long")],
            make_error_result("it is too long", "convo config key set groq"),
        ),
    ],
)
def test_keys(facts: list[ProviderKeyFacts], result: CheckResult) -> None:
    assert diagnose_keys(facts) == result


@pytest.mark.parametrize(
    ("provider", "owner"),
    [
        (Provider("openai", "responses"), "its provider"),
        (Provider("openai", "responses", owner="convo"), "convo"),
        (Provider("openai", "chat"), "convo"),
    ],
)
def test_the_default_model_is_reported_with_the_owner_of_the_state(provider: Provider, owner: str) -> None:
    choice = ModelChoice(ModelName("openai", "gpt-5"), provider, SettingSource(Layer.ENVIRONMENT, "CONVO_MODEL"))
    assert diagnose_model(ModelFacts(choice)) == make_ok_result(
        f"openai/gpt-5 (from CONVO_MODEL); {owner} stores chains and conversations"
    )


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (
            LocalModelFacts(has_engine=False, weights_file=None),
            make_warning_result("the engine of local models, xllamacpp, is not installed", "pip install xllamacpp"),
        ),
        (
            LocalModelFacts(has_engine=True, weights_file=None),
            make_warning_result("the weights of the built-in model are not installed", "convo models pull"),
        ),
        (
            LocalModelFacts(has_engine=True, weights_file=Path("/w/model.gguf")),
            make_ok_result("/w/model.gguf; needs no key and no network", brief="installed"),
        ),
    ],
)
def test_the_built_in_model(facts: LocalModelFacts, result: CheckResult) -> None:
    assert diagnose_local_model(facts) == result


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (
            None,
            make_ok_result("not used: neither the default model nor an alias is an Ollama model", brief="not used"),
        ),
        (
            OllamaFacts("http://h/v1", ["qwen3"], error="connection refused"),
            make_warning_result("connection refused", "ollama serve, or set OLLAMA_HOST to its address"),
        ),
        (
            OllamaFacts("http://h/v1", ["qwen3"], error="connection refused", is_default=True),
            make_error_result("connection refused", "ollama serve, or set OLLAMA_HOST to its address"),
        ),
        (
            OllamaFacts("http://h/v1", ["gemma", "llama3:8b", "phi", "qwen3:latest"], ["qwen3", "phi:latest"]),
            make_warning_result("Ollama at http://h/v1 does not have gemma, llama3:8b", "ollama pull gemma"),
        ),
        (
            OllamaFacts("http://h/v1", ["phi", "qwen3:latest"], ["qwen3", "phi:latest"]),
            make_ok_result("Ollama responds at http://h/v1"),
        ),
    ],
)
def test_ollama(facts: OllamaFacts | None, result: CheckResult) -> None:
    assert diagnose_ollama(facts) == result


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        ([], make_ok_result("no provider with a server is used or has a key")),
        ([ServerFacts("openai"), ServerFacts("groq")], make_ok_result("reachable: openai, groq")),
        (
            [ServerFacts("openai", "no route"), ServerFacts("groq"), ServerFacts("mine", "refused")],
            make_error_result(
                "no route; refused", "check the network, HTTPS_PROXY and the base URL; -m local needs none of them"
            ),
        ),
    ],
)
def test_the_network(facts: list[ServerFacts], result: CheckResult) -> None:
    assert diagnose_network(facts) == result


SERVE = ServeSettings("0.0.0.0", 8788, Path("/w/keys"), "SEAL")


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (
            ServeFacts(SERVE, is_exposed=True),
            make_error_result(
                "0.0.0.0, port 8788 can be reached from other machines, and no API keys are set up",
                'convo serve --new-key NAME, then set [serve] keys_file; or set host = "127.0.0.1"',
            ),
        ),
        (
            ServeFacts(SERVE, is_exposed=True, missing_packages=["uvicorn"], key_count=0),
            make_error_result("/w/keys has no keys: every request is rejected", "convo serve --new-key NAME"),
        ),
        (
            ServeFacts(SERVE, is_exposed=False, missing_packages=["starlette", "uvicorn"]),
            make_ok_result("not installed: convo serve needs starlette, uvicorn", "pip install 'convo-state[serve]'"),
        ),
        (ServeFacts(SERVE, is_exposed=True, key_count=2), make_ok_result("0.0.0.0, port 8788; 2 keys")),
        (
            ServeFacts(SERVE._replace(host="127.0.0.1"), is_exposed=False),
            make_ok_result("127.0.0.1, port 8788; this machine only, no key needed"),
        ),
    ],
)
def test_serve(facts: ServeFacts, result: CheckResult) -> None:
    assert diagnose_serve(facts) == result


PROCESS_KEY_RESULT = make_ok_result(
    "compaction items are encrypted with a key of this process only (SEAL is not set)",
    "export SEAL=..., if they must remain readable after a restart",
    brief="key of this process",
)
STORE_KEY_RESULT = make_ok_result(
    "compaction items are encrypted with the store's key, which all users of the store share",
    brief="key of the store",
)


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (
            EncryptionKeyFacts("SEAL", is_set=True, store_type="memory"),
            make_ok_result(
                "compaction items are encrypted with SEAL, which must be the same on all replicas", brief="key in SEAL"
            ),
        ),
        (EncryptionKeyFacts("SEAL", is_set=False, store_type="memory"), PROCESS_KEY_RESULT),
        (EncryptionKeyFacts("SEAL", is_set=False, store_type="none"), PROCESS_KEY_RESULT),
        (EncryptionKeyFacts("SEAL", is_set=False, store_type="sqlite"), STORE_KEY_RESULT),
        (EncryptionKeyFacts("SEAL", is_set=False, store_type="postgres"), STORE_KEY_RESULT),
    ],
)
def test_the_encryption_key(facts: EncryptionKeyFacts, result: CheckResult) -> None:
    assert diagnose_encryption_key(facts) == result


# -- stores -----------------------------------------------------------------------------------------

FILE = FileHealth(Path("/w/c.db"), 3, 3, 2_000_000_000, "ext4")
SQLITE = Storage("sqlite", path=Path("/w/c.db"))
BACKUP_HINT = "back it up with convo store backup FILE: without its -wal, the file is incomplete"


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("memory", "state does not persist across restarts, and is not shared between replicas"),
        ("none", "nothing is stored, and requests that continue earlier ones are rejected"),
    ],
)
def test_a_store_that_ends_with_the_process(kind: StorageType, loss: str) -> None:
    storage = Storage(kind)
    assert diagnose_store(StoreFacts(storage, FLAG)) == make_warning_result(
        f"the store is {kind} (from --store): {loss}",
        '[state_storage] type = "sqlite", or "postgres" for several replicas',
    )


@pytest.mark.parametrize(
    ("source", "health", "result"),
    [
        (
            BUILT_IN_SOURCE,
            FILE._replace(quick_check="row 7 is missing", filesystem="nfs", free_bytes=1, schema_version=2),
            make_error_result(
                "sqlite:/w/c.db (built in) is damaged: row 7 is missing",
                "convo store check, to list the sessions; convo store recover NEW.db, to save readable rows",
            ),
        ),
        (
            FLAG,
            FILE._replace(quick_check="row 7 is missing"),
            make_error_result(
                "sqlite:/w/c.db (from --store) is damaged: row 7 is missing",
                "convo store check --store sqlite:/w/c.db, to list the sessions;"
                " convo store recover NEW.db --store sqlite:/w/c.db, to save readable rows",
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(filesystem="nfs4", free_bytes=1, schema_version=2),
            make_warning_result(
                "sqlite:/w/c.db (built in) is on a network file system (nfs4), where SQLite's locks are unreliable",
                "move it to a local disk, or use PostgreSQL",
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(free_bytes=99_999_999, schema_version=None),
            make_warning_result("sqlite:/w/c.db (built in): its disk has 100.0 MB left", "free some space"),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(free_bytes=100_000_000, schema_version=None),
            make_ok_result("sqlite:/w/c.db (built in) is created by the first turn"),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(schema_version=2),
            make_warning_result("sqlite:/w/c.db (built in) has schema 2; this convo uses 3", "convo store migrate"),
        ),
        (
            FLAG,
            FILE._replace(schema_version=2),
            make_warning_result(
                "sqlite:/w/c.db (from --store) has schema 2; this convo uses 3",
                "convo store migrate, with the same --store",
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE,
            make_ok_result(
                "sqlite:/w/c.db (built in), schema 3, 2.0 GB free", BACKUP_HINT, brief="SQLite, 2.0 GB free"
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(quick_check=None),
            make_ok_result(
                "sqlite:/w/c.db (built in), schema 3, 2.0 GB free; too large for the quick check,"
                " run convo store check",
                BACKUP_HINT,
                brief="SQLite, 2.0 GB free",
            ),
        ),
    ],
)
def test_a_sqlite_store(source: SettingSource, health: FileHealth, result: CheckResult) -> None:
    assert diagnose_store(StoreFacts(SQLITE, source, health)) == result


@pytest.mark.parametrize(
    "filesystem",
    [
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p"),
        *("afs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre"),
    ],
)
def test_a_sqlite_store_on_a_network_file_system_is_a_warning(filesystem: str) -> None:
    facts = StoreFacts(SQLITE, BUILT_IN_SOURCE, FILE._replace(filesystem=filesystem))
    assert diagnose_store(facts).message == (
        f"sqlite:/w/c.db (built in) is on a network file system ({filesystem}), where SQLite's locks are unreliable"
    )


@pytest.mark.parametrize(
    ("storage", "note"),
    [
        (SQLITE._replace(default_ttl_s=60.0), "; unused data expires (ttl)"),
        (SQLITE._replace(tenant_ttls_s={"a": 60.0}), "; unused data expires (ttl)"),
        (SQLITE, ""),
    ],
)
def test_the_expiry_of_unused_data_ends_the_finding(storage: Storage, note: str) -> None:
    assert diagnose_store(StoreFacts(storage, BUILT_IN_SOURCE, FILE)).message == (
        f"sqlite:/w/c.db (built in), schema 3, 2.0 GB free{note}"
    )


SERVER = ServerHealth("PostgreSQL at host/db", 180_001, 'odd"name', 3, 3)
POSTGRES = Storage("postgres", url=Secret("postgresql://host/db"))


@pytest.mark.parametrize(
    ("health", "result"),
    [
        (
            SERVER._replace(server_version=119_999, is_read_only=True, schema_version=None),
            make_error_result("PostgreSQL at host/db is PostgreSQL 11.9999", "use PostgreSQL 12 or newer"),
        ),
        (
            SERVER._replace(server_version=120_000, is_read_only=True, schema_version=None),
            make_error_result(
                "PostgreSQL at host/db is read-only: a standby, or default_transaction_read_only is on",
                "use the primary in the connection string, or set default_transaction_read_only to off",
            ),
        ),
        (
            SERVER._replace(schema_version=None),
            make_error_result(
                "role 'odd\"name' lacks SELECT at PostgreSQL at host/db",
                'GRANT SELECT ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=None, missing_privileges=["USAGE", "SELECT", "INSERT"]),
            make_error_result(
                "role 'odd\"name' lacks USAGE, SELECT, INSERT at PostgreSQL at host/db",
                'GRANT USAGE ON SCHEMA convo TO "odd""name";'
                ' GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=None, missing_privileges=["INSERT"]),
            make_error_result(
                "role 'odd\"name' lacks INSERT at PostgreSQL at host/db",
                'GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=1, missing_privileges=["USAGE"]),
            make_error_result(
                "role 'odd\"name' lacks USAGE at PostgreSQL at host/db",
                'GRANT USAGE ON SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(missing_privileges=["DELETE"]),
            make_error_result(
                "role 'odd\"name' lacks DELETE at PostgreSQL at host/db",
                'GRANT DELETE ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=2),
            make_error_result(
                "PostgreSQL at host/db is at schema 2 of 3",
                "convo store migrate --print-sql --above 2 > schema.sql,"
                " and run it with a role that can create schemas",
            ),
        ),
        (
            SERVER._replace(schema_version=2, can_create_schema=True),
            make_error_result("PostgreSQL at host/db is at schema 2 of 3", "convo store migrate"),
        ),
        (
            SERVER._replace(schema_version=0),
            make_error_result(
                "PostgreSQL at host/db lacks convo's tables",
                "convo store migrate --print-sql > schema.sql, and run it with a role that can create schemas",
            ),
        ),
        (
            SERVER._replace(uses_tls=True),
            make_ok_result(
                "PostgreSQL at host/db (built in): PostgreSQL 18.1, role 'odd\"name', schema 3, TLS, at Supabase",
                brief="PostgreSQL 18.1, TLS",
            ),
        ),
        (
            SERVER,
            make_ok_result(
                "PostgreSQL at host/db (built in): PostgreSQL 18.1, role 'odd\"name', schema 3, no TLS, at Supabase",
                brief="PostgreSQL 18.1, no TLS",
            ),
        ),
    ],
)
def test_a_postgresql_store(health: ServerHealth, result: CheckResult) -> None:
    assert diagnose_store(StoreFacts(POSTGRES, BUILT_IN_SOURCE, health, ", at Supabase")) == result


def test_the_migration_of_a_postgresql_store_that_a_flag_names_keeps_the_flag() -> None:
    no_tables = SERVER._replace(schema_version=0)
    assert diagnose_store(StoreFacts(POSTGRES, FLAG, no_tables)).hint == (
        "convo store migrate --print-sql > schema.sql, with the same --store, and run it with a role that can create"
        " schemas"
    )
    assert diagnose_store(StoreFacts(POSTGRES, FLAG, no_tables._replace(can_create_schema=True))).hint == (
        "convo store migrate, with the same --store"
    )


def test_a_finding_of_a_postgresql_store_ends_with_the_expiry_of_unused_data() -> None:
    storage = POSTGRES._replace(default_ttl_s=60.0)
    assert diagnose_store(StoreFacts(storage, BUILT_IN_SOURCE, SERVER)) == make_ok_result(
        "PostgreSQL at host/db (built in): PostgreSQL 18.1, role 'odd\"name', schema 3, no TLS;"
        " unused data expires (ttl)",
        brief="PostgreSQL 18.1, no TLS",
    )
