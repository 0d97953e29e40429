"""What `convo doctor` makes of the store: what stands in the way first, with the exact words that mend it.

The store itself said why it cannot be reached; here stands what it would not say until somebody
needs it: tables that are missing, rights, a disk that is nearly full, state that does not stay.
"""

from shlex import quote
from typing import NamedTuple

from convo.config import Layer, Origin, Storage
from convo.stores.condition import Condition, FileCondition, ServerCondition
from convo.ui.findings import Finding, fault, ok, warning
from convo.ui.holdings import size


class Kept(NamedTuple):
    """Where conversations are kept, who said so, and what it is like there; None for what is kept nowhere.

    via:  the pooler in between, in words
    """

    storage: Storage
    origin: Origin
    condition: Condition | None = None
    via: str = ""


LITTLE_BYTES = 100_000_000
NETWORKS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre"}
)
"""File systems on which SQLite's log, which lives in shared memory, cannot be trusted."""

OLDEST_SERVER = 120_000

EPHEMERAL = {
    "memory": "state does not persist across restarts, and is not shared between replicas",
    "none": "nothing is kept, and requests that go on from earlier ones are refused",
}


WITH_ITS_LOG = "copy it with convo store backup FILE: the file without its -wal is incomplete"


def store(kept: Kept) -> Finding:
    match kept.condition:
        case FileCondition() as file:
            return _in_file(kept, file)
        case ServerCondition() as server:
            return _on_server(kept, server)
    return warning(
        f"the store is {kept.storage.type} ({kept.origin}): {EPHEMERAL[kept.storage.type]}",
        '[state_storage] type = "sqlite", or "postgres" for several replicas',
    )


def _in_file(kept: Kept, file: FileCondition) -> Finding:
    said = f"sqlite:{file.file} ({kept.origin})"
    same = _same(kept)
    if file.quick_check not in ("ok", None):
        return fault(
            f"{said} is damaged: {file.quick_check}",
            f"convo store check{same} names the sessions, convo store recover NEW.db{same} saves what can be read",
        )
    if file.filesystem in NETWORKS:
        return warning(
            f"{said} is on a network file system ({file.filesystem}), where SQLite's locks cannot be trusted",
            "keep it on a disk of this machine, or in PostgreSQL",
        )
    if file.free_bytes < LITTLE_BYTES:
        return warning(f"{said}: its disk has {size(file.free_bytes)} left", "free some space")
    if file.schema is None:
        return ok(f"{said} will be made by the first turn")
    if file.schema < file.known:
        return warning(f"{said} has schema {file.schema}; this convo's is {file.known}", _migrate(kept))
    checked = "" if file.quick_check else "; too large for the quick check: convo store check"
    return ok(f"{said}, schema {file.schema}, {size(file.free_bytes)} free{checked}" + _ttl(kept.storage), WITH_ITS_LOG)


def _on_server(kept: Kept, server: ServerCondition) -> Finding:
    if server.version < OLDEST_SERVER:
        return fault(f"{server.place} is PostgreSQL {_version(server)}", "convo needs PostgreSQL 12 or newer")
    if server.read_only:
        return fault(
            f"{server.place} takes no writes: a standby, or set to read only",
            "name the primary in the connection string, or set default_transaction_read_only to off",
        )
    if server.lacking or server.schema is None:
        rights = ", ".join(server.lacking or ("SELECT",))
        return fault(f"role {server.role!r} lacks {rights} at {server.place}", _grant(server))
    if server.schema < server.known:
        lacks = f"is at schema {server.schema} of {server.known}" if server.schema else "lacks convo's tables"
        return fault(f"{server.place} {lacks}", _migrate(kept, above=server.schema, may_create=server.may_create))
    said = (
        f"{server.place} ({kept.origin}): PostgreSQL {_version(server)}, role {server.role!r}, schema {server.schema}"
    )
    return ok(f"{said}, {'TLS' if server.tls else 'no TLS'}{kept.via}{_ttl(kept.storage)}")


def _version(server: ServerCondition) -> str:
    return f"{server.version // 10_000}.{server.version % 10_000}"


def _grant(server: ServerCondition) -> str:
    """The statements that give what is lacking, for whoever owns the tables."""
    role = '"' + server.role.replace('"', '""') + '"'
    rights = [right for right in server.lacking if right != "USAGE"]
    if server.schema is None and "SELECT" not in rights:
        rights.insert(0, "SELECT")
    usage = [f"GRANT USAGE ON SCHEMA convo TO {role};"] if "USAGE" in server.lacking else []
    tables = [f"GRANT {', '.join(rights)} ON ALL TABLES IN SCHEMA convo TO {role};"] if rights else []
    return " ".join([*usage, *tables])


def _migrate(kept: Kept, *, above: int = 0, may_create: bool = True) -> str:
    same = ", with the same --store" if kept.origin.layer is Layer.FLAG else ""
    if may_create:
        return f"convo store migrate{same}"
    missing = f" --above {above}" if above else ""
    return f"convo store migrate --print-sql{missing} > schema.sql{same}, for somebody who may create schemas to run"


def _same(kept: Kept) -> str:
    """The store as the command line has to name it again."""
    return f" --store {quote(str(kept.storage))}" if kept.origin.layer is Layer.FLAG else ""


def _ttl(storage: Storage) -> str:
    """What goes by itself: somebody may miss it."""
    return "; what is not used goes after a time (ttl)" if storage.ttl or storage.ttls else ""
