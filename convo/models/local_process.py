"""The process that runs local weights (xllamacpp).

A script that imports nothing of convo: its argument is a JSON object, its one line of output is the
server's address, and it ends when its standard input closes. It listens on a unix socket in a private
folder, or on loopback with a random key.
"""

import json
import os
import re
import secrets
import shutil
import sys
import time
from typing import Any

CONTEXT_TOKENS = 4096
"""Context window in tokens, input and output together."""

_BATCH_TOKENS = 128
"""Tokens per batch: about one second of work, after which a closed request is noticed."""

_CACHE_MIB = 256
"""MiB for the states of idle chats, so that their input is not processed again."""

_LOG_WAIT_S = 10.0
"""Seconds that the engine's thread for its log may take to write the reason of a failed start."""

_LOG_PAUSE_S = 0.1
"""Seconds without a new line after which the log of a failed start is complete."""


def run_engine() -> None:
    options = json.loads(sys.argv[1])
    # A copy, because the next line replaces the descriptor.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine's own output must not mix with the address
    try:
        server = start_engine_server(options)
        print(json.dumps(server["address"]), file=output, flush=True)
        # Returns at the end of the parent, also if that was killed.
        sys.stdin.buffer.read()
    except RuntimeError:
        wait_for_log()
        raise
    except BrokenPipeError:
        pass  # the parent process ended during the load
    finally:
        if options["folder"]:
            shutil.rmtree(options["folder"], ignore_errors=True)
    os._exit(0)  # do not finish a response that has no reader


def start_engine_server(options: dict[str, Any]) -> dict[str, Any]:
    """Load the weights and listen; the server stops when the returned object is deleted.

    options:  weights (a path), name, threads, folder (private, for the socket; None: loopback)
    """
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = options["weights"], {options["name"]}
    params.n_ctx, params.n_batch, params.n_ubatch, params.cache_ram_mib = (
        CONTEXT_TOKENS,
        _BATCH_TOKENS,
        _BATCH_TOKENS,
        _CACHE_MIB,
    )
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    # `/slots` shows the texts of all requests to every process that can connect.
    params.ui = params.endpoint_slots = params.prefill_assistant = False
    params.verbosity = 1  # errors only: the parent reads them if the start fails
    if options["folder"]:
        path = os.path.join(options["folder"], "engine.sock")
        params.hostnames = [path]
        return {"server": xllamacpp.Server(params), "address": {"socket": path}}
    # The engine's port is open to every user of the machine, with CORS for every page.
    key = secrets.token_urlsafe(32)
    params.api_keys = [key]
    server = xllamacpp.Server(params)
    return {"server": server, "address": {"url": server.listening_address, "key": key}}


def wait_for_log() -> None:
    """Wait until the log on stderr, a file, has an error line and does not grow any more.

    A thread of the engine writes the log, and the exit of the process stops it: under load the reason was lost.
    """
    deadline, size = time.monotonic() + _LOG_WAIT_S, -1
    while time.monotonic() < deadline:
        log = os.pread(2, os.fstat(2).st_size, 0)
        if len(log) == size and re.search(rb" E .+\n", log):
            return
        size = len(log)
        time.sleep(_LOG_PAUSE_S)


if __name__ == "__main__":
    run_engine()
