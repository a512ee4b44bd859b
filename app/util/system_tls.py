"""Which certificates are trusted by whatever fetches: the system's, or what SSL_CERT_FILE and SSL_CERT_DIR name."""

import ssl
from functools import cache


@cache
def system_tls() -> ssl.SSLContext:
    """Cached: loading the certificates takes tens of milliseconds."""
    import httpx2

    return httpx2.create_ssl_context()
