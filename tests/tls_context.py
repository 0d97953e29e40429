"""One TLS context for all HTTP clients of a process: each client would load the certificates of the system again.

The servers of the tests speak plain HTTP, so no test uses the context. A client that is created with other
certificates in its environment gets its own context, or the error for a file that cannot be read.
"""

import os
import ssl
from functools import cache
from typing import Any
from unittest.mock import patch


def share_tls_context() -> None:
    """Let all clients of httpx2 in this process share one context."""
    import httpcore2

    create_context = httpcore2.default_ssl_context

    @cache
    def context_for(*certificates: str | None, **options: Any) -> ssl.SSLContext:
        return create_context(**options)

    def shared_context(**options: Any) -> ssl.SSLContext:
        return context_for(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), **options)

    patch.object(httpcore2, "default_ssl_context", shared_context).start()
