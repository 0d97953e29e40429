"""Why no connection came about, and what to do about each reason.

Before a server has said who it is there are no codes, only the words of the network, the driver
and the server. These are the ones that people meet, each with one next step. Whoever reads other
words, or the same in another language, gets the words themselves and the general advice.
"""

import re

REACH = "see that the server runs, and what [state_storage] connection_string says"
MIGRATE = "convo store migrate"

SESSION_POOLER = (
    "db.PROJECT.supabase.co has an IPv6 address only: take the session pooler's connection string,"
    " postgres.PROJECT:...@aws-0-REGION.pooler.supabase.com:5432; or restore the project, if it is paused"
)
PAUSED = "see in the Supabase dashboard that the project is not paused, and take the pooler's host from there"
POOLERS_USER = "at Supabase's pooler the user is postgres.PROJECT, and a paused project has to be restored first"

DIRECT = re.compile(r"\bdb\.\w+\.supabase\.(co|com|in)\b")
POOLER = re.compile(r"\.pooler\.supabase\.(co|com|in)\b")
UNREACHED = re.compile(
    r"resolve host|translate host name|timeout expired|timed out|refused|unreachable|No route to host", re.IGNORECASE
)

STEPS = (
    (r"Tenant or user not found|tenant/user .* not found", POOLERS_USER),
    (r"resolve host|translate host name", "see that the host's name is right, and that this machine is online"),
    (r"Connection refused", "start the server there, or mend the host and port in the connection string"),
    (r"timeout expired|timed out", "see that the host is right, and that no firewall stands in between"),
    (r"unreachable|No route to host", "see that this machine has a way there; many networks have no IPv6"),
    (r"socket .* failed: No such file", "start the server, or mend the folder of its socket in the connection string"),
    (
        r"password authentication failed|SASL authentication failed",
        "mend user and password; in a URL the password's special characters are percent-encoded: @ %40, # %23, & %26",
    ),
    (r"no password supplied", "write the password into the connection string, as user:$DB_PASSWORD@host"),
    (r"database .* does not exist", "create the database, or mend its name in the connection string"),
    (r"role .* does not exist", "create the role, or mend the user's name in the connection string"),
    (r"server does not support SSL", "let the server take TLS, or write another sslmode into the connection string"),
    (r"certificate", "sslrootcert= in the connection string names the certificate that signed the server's"),
    (r"pg_hba.conf.*no encryption", "add sslmode=require to the connection string, or ask for an entry in pg_hba.conf"),
    (r"pg_hba.conf", "ask whoever runs the server for an entry in its pg_hba.conf"),
    (r"too many (clients|connections)|connection slots", "close other clients, or go through a pooler"),
    (r"starting up|shutting down|in recovery", "wait a moment, then try again"),
)
"""Words, and the next step where they occur; the first that fits counts."""

AROUND = re.compile(r"connection (?:failed|is bad): (?:connection to server .*? failed: )?(?:FATAL:\s+)?")
"""What stands before the words that say something: the place is known."""


def step(words: str, place: str) -> str:
    """What to do next.

    words:  all that the driver said
    place:  where the server is, for people
    """
    if UNREACHED.search(words) and (DIRECT.search(place) or POOLER.search(place)):
        return SESSION_POOLER if DIRECT.search(place) else PAUSED
    return next((next_step for said, next_step in STEPS if re.search(said, words, re.IGNORECASE)), REACH)


def shortened(words: str) -> str:
    """The first line of what was said, without the place."""
    return AROUND.sub("", words.strip().partition("\n")[0], count=1)
