"""The sandbox as a server on this machine has it, for tests that skip where it does not work."""

import os
from collections.abc import Mapping

import pytest

from app.project.sandbox.sandbox import Sandbox, open_sandbox
from app.settings import Settings

_FOUND = open_sandbox(Settings())
needs_sandbox = pytest.mark.skipif(not _FOUND.is_on, reason=_FOUND.state)


def sandbox_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> Sandbox:
    found = open_sandbox(settings, environment)
    assert found.is_on, found.state
    return found
