"""What the documentation says of an identity provider, with a small real one."""

import os
import subprocess
from pathlib import Path

from doc_snippets import Block, blocks, matches
from identity_provider import identity_provider
from running_server import ROOT, clean_environment, needed, serving_here

SHOWN_ISSUER = "https://login.example.com/realms/work"
SUBJECT = "248289761001"


def documented(kind: str) -> Block:
    page = (ROOT / "docs" / "operations.md").read_text()
    return next(block for block in blocks(page) if block.kind == kind)


def test_the_settings_let_the_providers_users_in(tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        needed(program)
    commands = documented("sh oidc")
    assert commands.shown is not None
    with identity_provider() as issuer:
        settings = dict(
            line.split("=", 1) for line in documented("ini oidc").code.replace(SHOWN_ISSUER, issuer.issuer).splitlines()
        )
        with serving_here(tmp_path, **settings) as server:
            token = issuer.token(SUBJECT, realm_access={"roles": ["member"]})
            ran = subprocess.run(
                ["sh", "-e", "-c", commands.code],
                env=clean_environment(tmp_path / "home", S=server.base, JWT=token, PATH=os.environ["PATH"]),
                capture_output=True,
                text=True,
                timeout=60,
            )
    assert ran.returncode == 0, ran.stderr
    assert matches(commands.shown, ran.stdout), ran.stdout
