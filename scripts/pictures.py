"""Take the pictures of the documentation from the running demo, light and dark: `make pictures`.

Requires Chromium. The demo gets a directory and a database of its own, and an authorization server. Clients open
sessions first, so that the admin has some to show. A second demo has bots, whose calls fill the control room. Each
picture is a WebP file in docs/pictures/, and `-dark` in its name marks the dark form.
"""

import base64
import hashlib
import io
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
REDIRECT_URI = "http://localhost:33418/callback"
SCHEMES = {"light": "", "dark": "-dark"}
WIDE, NARROW, TALL = {"width": 1200, "height": 750}, {"width": 560, "height": 750}, {"width": 1200, "height": 1350}
BUSY_SECONDS = 90
"""Seconds for which the bots call before the pictures of the control room."""
ROOM = "/admin/mcp_control_room"
MAX_COLORS = 256
USUAL_PORT = 8000
CLIENTS = {"editor": "2025-11-25", "notebook": "2025-06-18", "assistant": "2025-03-26"}
"""Names of the clients that have sessions, and their revisions of the protocol."""


class Demo:
    """The demo that is being served, with its login."""

    def __init__(self, site: str, directory: Path, password: str) -> None:
        self.site = site
        self.directory = directory
        self.password = password

    def manage(self, *arguments: str) -> str:
        """Run a command of the project, and return its output."""
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.check_output(command, cwd=ROOT, env=build_environment(self.site, self.directory), text=True)


def main() -> None:
    """Serve the demo, use it, and take all pictures in both schemes."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with serve_demo(Path(directory) / "var") as demo:
            open_sessions(demo)
            consent_url = build_consent_url(demo)
            for context, suffix in iter_schemes(browser):
                take_pictures(context, demo, consent_url, suffix)
        with serve_demo(Path(directory) / "busy", "--busy") as demo:
            time.sleep(BUSY_SECONDS)
            for context, suffix in iter_schemes(browser):
                take_room_pictures(context, demo, suffix)
        browser.close()


def iter_schemes(browser: Browser) -> Iterator[tuple[BrowserContext, str]]:
    """Yield a context for each colour scheme, and the end of the names of its pictures."""
    for scheme, suffix in SCHEMES.items():
        with browser.new_context(color_scheme="dark" if scheme == "dark" else "light") as context:
            yield context, suffix


@contextmanager
def serve_demo(directory: Path, *options: str) -> Iterator[Demo]:
    """Serve the demo until the block ends."""
    port = find_port()
    site = f"http://127.0.0.1:{port}"
    command = [sys.executable, "manage.py", "demo", "--port", str(port), *options]
    environment = build_environment(site, directory)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            welcome = read_welcome(process)
            found = re.search(r"password (\S+)", welcome)
            if found is None:
                sys.exit(f"The demo did not start:\n{welcome}")
            yield Demo(site, directory, found[1])
        finally:
            process.terminate()
            process.communicate()


def find_port() -> int:
    """Return the port that the documentation names, or another one if it is in use."""
    for port in (USUAL_PORT, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue
    sys.exit("There is no free port.")


def build_environment(site: str, directory: Path) -> dict[str, str]:
    """Build the variables of a demo with a state of its own."""
    own = {"DEMO_DIR": str(directory), "DEMO_AUTH": "oauth", "DEMO_ORIGIN": site, "DJANGO_DEBUG": "1"}
    inherited = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    return inherited | own | {"DJANGO_SETTINGS_MODULE": "project.settings"}


def read_welcome(process: subprocess.Popen[str]) -> str:
    """Return the lines that the demo prints before it serves."""
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if "Ctrl-C" in line:
            break
    return "".join(lines)


def open_sessions(demo: Demo) -> None:
    """Open a session for each client, with one token, and leave it open."""
    token = demo.manage("mcp_createtoken", "demo", "--name", "Laptop").strip().splitlines()[-1]
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=demo.site, headers=headers) as http:
        for name, revision in CLIENTS.items():
            info = {"name": name, "version": "1.0"}
            params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            http.post("/mcp", json=message).raise_for_status()


def build_consent_url(demo: Demo) -> str:
    """Register a client, and return the URL at which it asks a user for access."""
    registration = {
        "client_name": "Editor",
        "redirect_uris": [REDIRECT_URI],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    }
    registered = httpx.post(f"{demo.site}/o/register/", json=registration).raise_for_status().json()
    challenge = base64.urlsafe_b64encode(hashlib.sha256(secrets.token_bytes(32)).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": registered["client_id"],
        "redirect_uri": REDIRECT_URI,
        "scope": "airports:read airports:plan",
        "state": "pictures",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": f"{demo.site}/mcp",
    }
    return f"{demo.site}/o/authorize/?{urlencode(query)}"


def take_pictures(context: BrowserContext, demo: Demo, consent_url: str, suffix: str) -> None:
    """Take each picture in one colour scheme."""
    page = context.new_page()
    page.set_viewport_size(WIDE)
    page.goto(demo.site)
    save_picture(page.screenshot(), f"demo{suffix}")

    log_in(page, demo)
    page.goto(f"{demo.site}/admin/mcp_django/session/")
    page.click("#toggle-nav-sidebar")
    page.evaluate("window.scrollTo(0, 0)")
    save_picture(page.screenshot(), f"admin{suffix}")

    page.set_viewport_size(NARROW)
    page.goto(consent_url)
    save_picture(page.screenshot(full_page=True), f"consent{suffix}")


def take_room_pictures(context: BrowserContext, demo: Demo, suffix: str) -> None:
    """Take the pictures of the control room in one colour scheme."""
    page = context.new_page()
    page.set_viewport_size(TALL)
    log_in(page, demo)
    page.goto(f"{demo.site}{ROOM}/controlroom/?span=quarter")
    page.click("#toggle-nav-sidebar")
    page.evaluate("window.scrollTo(0, 0)")
    save_picture(page.screenshot(), f"control-room{suffix}")

    page.goto(f"{demo.site}{ROOM}/calllogentry/?name=plan_trip&outcome=ok")
    page.locator("#result_list tbody th a").first.click()
    save_picture(page.locator(".call-times").first.screenshot(), f"call-timeline{suffix}")

    page.goto(f"{demo.site}/admin/mcp_playground/playground/?name=plan_trip")
    save_picture(page.screenshot(), f"playground{suffix}")


def log_in(page: Page, demo: Demo) -> None:
    """Log in to the admin."""
    page.goto(f"{demo.site}/admin/login/")
    page.fill("input[name=username]", "demo")
    page.fill("input[name=password]", demo.password)
    page.press("input[name=password]", "Enter")
    page.wait_for_url("**/admin/")


def save_picture(png: bytes, name: str) -> None:
    """Save a screenshot with few colours, which keeps texts sharp and files small."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(MAX_COLORS).convert("RGB")
    path = PICTURES / f"{name}.webp"
    picture.save(path, lossless=True, quality=100, method=6)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
