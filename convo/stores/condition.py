"""What a store's place is like, before anything is asked of the store itself.

A store that works says nothing of a schema that is one number behind, of a right that only the next
write will miss or of a disk that is nearly full. Whoever looks for such things gets these values;
looking changes nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias


class FileCondition(NamedTuple):
    """A database in a file that can be written, or could be made.

    schema:      the number of its last migration; None where there is no file yet
    known:       the number of this convo's last migration
    free_bytes:  of its disk
    filesystem:  as the system calls it: "ext4", "nfs4"; empty where that cannot be known
    quick_check: the first line of SQLite's quick check, "ok" where it found nothing; None where it took too long
    """

    file: Path
    schema: int | None
    known: int
    free_bytes: int
    filesystem: str = ""
    quick_check: str | None = "ok"


class ServerCondition(NamedTuple):
    """A database on a server that let this role in.

    version:     the server's, as it counts: 120022 is 12.22, 180001 is 18.1
    schema:      the number of its last migration; 0 where there are no tables; None where that may not be read
    may_create:  whether this role may make convo's schema
    lacking:     what this role may not do there: "USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"
    read_only:   it takes no writes at all, from anybody or from this role
    tls:         whether the connection is encrypted
    """

    place: str
    version: int
    role: str
    schema: int | None
    known: int
    may_create: bool = False
    lacking: Sequence[str] = ()
    read_only: bool = False
    tls: bool = False


Condition: TypeAlias = FileCondition | ServerCondition
