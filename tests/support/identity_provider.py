"""A small identity provider: an HTTP server with OpenID Connect's discovery and keys, that issues tokens."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from loopback import QuietHandler, on_loopback

AUDIENCE = "opensession"


class IdentityProvider:
    """`fetches` counts how often its keys were fetched."""

    def __init__(self) -> None:
        self.fetches = 0
        self.issuer = ""
        self.rotate()

    def rotate(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key_id = f"key-{time.monotonic_ns()}"

    def answer(self, path: str) -> Any:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        self.fetches += 1
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return {"keys": [{**public, "kid": self.key_id, "use": "sig"}]}

    def claims(self, subject: str, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        return {"iss": self.issuer, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 600, **claims}

    def token(self, subject: str, **claims: Any) -> str:
        return jwt.encode(self.claims(subject, **claims), self._key, "RS256", headers={"kid": self.key_id})

    def unsigned(self, subject: str) -> str:
        """`alg: none`."""
        return jwt.encode(self.claims(subject), "", "none", headers={"kid": self.key_id})

    def signed_with_public_key(self, subject: str) -> str:
        """HS256, with the public key as its secret: everybody could make it."""
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        head = _part({"alg": "HS256", "typ": "JWT", "kid": self.key_id}) + "." + _part(self.claims(subject))
        return head + "." + _encoded(hmac.digest(public, head.encode(), hashlib.sha256))


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.reply(json.dumps(provider.answer(self.path)).encode())

    with on_loopback(Handler) as port:
        provider.issuer = f"http://127.0.0.1:{port}"
        yield provider
