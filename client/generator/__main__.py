"""`python -m generator`, in `client/`: writes what is generated. With `--check` it writes nothing and fails where that is old."""

import subprocess
import sys
from pathlib import Path

import yaml

from generator.first_api import first_api
from generator.models import models_module
from generator.operations import operations_module
from generator.sync import sync_module

CLIENT = Path(__file__).parents[1]
PACKAGE = CLIENT / "opensession_client"
RUFF = Path(sys.executable).with_name("ruff")


def generated() -> dict[Path, str]:
    api = first_api(yaml.load((CLIENT.parent / "openapi.yaml").read_text(), yaml.CSafeLoader))
    modules = {PACKAGE / "models.py": models_module(api), PACKAGE / "operations.py": operations_module(api)}
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        if source.name != "callbacks.py":  # in both clients a text of its own
            modules[PACKAGE / "_sync" / source.name] = sync_module(source.name, source.read_text())
    return {path: _formatted(path, text) for path, text in modules.items()}


def _formatted(path: Path, text: str) -> str:
    """With imports sorted: names of the sync client sort otherwise than the async one's."""
    for command in (["check", "--quiet", "--select", "I001,F401", "--fix-only"], ["format", "--quiet"]):
        ruff = [str(RUFF), *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, cwd=CLIENT.parent, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    old = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv:
        sys.exit("\n".join(f"{path.relative_to(CLIENT)} is not current: run `make openapi`" for path in old) or None)
    for path, text in old.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
