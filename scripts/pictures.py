"""Makes the README's pictures anew, docs/images/page.png and run.png: `.venv/bin/python scripts/pictures.py`.

The server, the page and the command are real, a script stands for the model. Needs Chromium and tmux.
"""

import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from chromium import chromium  # noqa: E402
from playwright.sync_api import Browser, expect  # noqa: E402
from running_server import clean_environment, new_workspace, serving, this_checkout  # noqa: E402

PROMPT = "Greet people by name, and run the test"
GREET, NAMED = 'def greet():\n    return "Hello"\n', 'def greet(name):\n    return f"Hello, {name}"\n'
TEST = "from greet import greet\n\nassert greet('Ada') == 'Hello, Ada'\nprint('1 test passed')\n"
TURNS = [
    [{"text": "I read the code first."}, {"tool": "read", "args": {"filePath": "greet.py"}}],
    [
        {"text": "`greet` takes no name yet. I add one."},
        {"tool": "edit", "args": {"filePath": "greet.py", "oldString": GREET, "newString": NAMED}},
    ],
    [{"tool": "bash", "args": {"command": "python3 test_greet.py", "description": "Run the test"}}],
    [{"text": "`greet` takes a name now, and the test passes."}],
]
OTHER_SESSIONS = ["Upgrade the linter", "Why is the build slow?", "Translate the error messages"]
COLUMNS, LINES = 80, 20

STYLE = """
pre { margin: 0; padding: 18px 22px; width: 80ch; font: 14px/1.45 monospace; background: #1c2128; color: #d7dde4 }
.b1 { font-weight: bold } .b2 { opacity: .65 }
.b31 { color: #f47067 } .b32 { color: #6bc46d } .b33 { color: #daaa3f } .b36 { color: #76b3d6 }
"""
"""Of a terminal: `b32` is what SGR 32 makes green."""


def write_project(directory: Path) -> None:
    (directory / "greet.py").write_text(GREET)
    (directory / "test_greet.py").write_text(TEST)


def scripted(directory: Path) -> dict[str, str]:
    """The environment in which the script answers, and a command is asked for."""
    script = directory / "script.json"
    script.write_text(json.dumps({"turns": TURNS}))
    config = {"permission": {"bash": "ask"}}
    return {**this_checkout()[1], "OPENSESSION_SCRIPT": str(script), "OPENCODE_CONFIG_CONTENT": json.dumps(config)}


def picture_of_page(browser: Browser, directory: Path) -> bytes:
    """A turn with a permission, to its end."""
    with serving(this_checkout()[0], directory, scripted(directory)) as server:
        write_project(server.workspace)
        page = browser.new_page(viewport={"width": 1100, "height": 780})
        for title in OTHER_SESSIONS:
            page.request.post(f"{server.base}/session", data={"title": title})
        page.goto(server.base)
        page.get_by_role("textbox", name="Prompt").fill(PROMPT)
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="Allow once").click()
        expect(page.locator(".message.assistant").last).to_contain_text("the test passes")
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        expect(page.get_by_role("heading", level=1)).to_have_text(PROMPT)
        return page.screenshot()


def picture_of_run(browser: Browser, directory: Path) -> bytes:
    """The same turn on a terminal, to its end."""
    project = new_workspace(directory / "project")
    write_project(project)
    environment = clean_environment(directory, **scripted(directory), TERM="xterm-256color", LC_ALL="C.UTF-8")
    page = browser.new_page(viewport={"width": 1000, "height": 600})
    page.set_content(f"<style>{STYLE}</style><pre>{coloured(screen_of_run(project, environment))}</pre>")
    return page.locator("pre").screenshot()


def screen_of_run(project: Path, environment: dict[str, str]) -> str:
    """With its control sequences of colours."""
    shown = f"echo '$ opensession run --allow \"{PROMPT}\"'"
    command = f"{shown}; {sys.executable} -m app.cli run --allow '{PROMPT}'; tmux wait-for -S over; sleep 60"
    tmux = ["tmux", "-f", "/dev/null", "-S", str(project.parent / "tmux")]
    start = [*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(project), "sh", "-c", command]
    subprocess.run(start, env=environment, check=True)
    subprocess.run([*tmux, "wait-for", "over"], check=True, timeout=60)
    screen = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, encoding="utf-8").stdout
    subprocess.run([*tmux, "kill-server"], check=True)
    return screen.rstrip()


def coloured(screen: str) -> str:
    """As HTML: a span for each run of text of one style."""
    plain, *runs = re.split(r"\x1b\[([\d;]*)m", html.escape(screen))
    style: set[str] = set()
    spans = [plain]
    for codes, text in zip(runs[::2], runs[1::2], strict=True):
        for code in codes.split(";"):
            style = changed(style, code)
        spans.append(f"<span class='{' '.join(sorted(style))}'>{text}</span>")
    return "".join(spans)


def changed(style: set[str], code: str) -> set[str]:
    """By a code of SGR: 0 ends all, 39 the colour, 49 that of the background, which has none here."""
    if code == "39":
        return {each for each in style if not each.startswith("b3")}
    return set() if code in ("", "0") else style | {f"b{code}"}


def main() -> None:
    with chromium() as browser:
        for name, take in {"page": picture_of_page, "run": picture_of_run}.items():
            with tempfile.TemporaryDirectory(prefix="picture") as directory:
                (ROOT / "docs" / "images" / f"{name}.png").write_bytes(take(browser, Path(directory)))


if __name__ == "__main__":
    main()
