"""The README's lines run as they stand there, and print what it says."""

import json
import re
import subprocess
from pathlib import Path

from running_server import RunningServer, needed

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, containing: str) -> str:
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return next(text for text in blocks if containing in text)


def anonymous(line: str) -> str:
    return re.sub(r"ses_[0-9A-Za-z]+", "ses_…", line)


def printed_text(lines: list[str]) -> str:
    return "".join(json.loads("{" + line + "}")["delta"] for line in lines if line.startswith('"delta"'))


def test_the_five_lines_of_curl_print_what_the_readme_shows(server: RunningServer) -> None:
    needed("curl")
    script = block("sh session", "/fork").replace("http://127.0.0.1:4096", server.base)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=180)
    shown, printed = block("text session", "fork #1").splitlines(), done.stdout.splitlines()
    assert len(script.strip().splitlines()) == 5
    assert printed_text(printed) == printed_text(shown), done.stderr
    others = [[anonymous(line) for line in lines if not line.startswith('"delta"')] for lines in (printed, shown)]
    assert others[0] == others[1], done.stderr
