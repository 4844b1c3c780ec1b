"""The picture of the layers in `CONTRIBUTING.md` and `docs/design/index.md`, drawn from the table of the test.

python -m tests.repository.layer_picture    writes both pages
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.repository.test_architecture import LAYERS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design" / "index.md")
BEGIN, END = "<!-- layers: drawn by make reference -->\n\n", "\n<!-- end of layers -->"
SUBJECTS: Mapping[str, str] = {
    "__init__": "public names",
    "contrib.oauth": "optional apps",
    "contrib.http_tools": "shared by rest and openapi",
    "admin": "entry points",
    "extensions": "base of extensions",
    "transports": "bytes in, bytes out",
    "wiring": "settings become objects",
    "auth": "one subject each",
    "models": "rows; pages, requests, files",
    "conf": "settings, signals, logs, errors",
    "server": "the engine: no Django",
    "schema": "signatures and values",
    "protocol": "wire format",
    "aio": "asyncio helpers; sealing",
}
"""Subject of the layer that has a room."""
WIDTH = 82
"""Characters of the column with the rooms."""


def render_layers(layers: Sequence[set[str]]) -> str:
    """Draw the layers as text, public names on top and the rooms below them in the order of the alphabet."""
    blocks = []
    for rooms in reversed(layers):
        (subject,) = [text for name, text in SUBJECTS.items() if name in rooms]
        names = sorted("mcp_django" if name == "__init__" else name for name in rooms)
        lines = textwrap.wrap("  ".join(names), WIDTH, break_on_hyphens=False)
        first, *rest = [f"{line:<{WIDTH}}  {subject}".rstrip() for line in lines[:1]] + lines[1:]
        blocks.append("\n".join([first, *rest]))
    return "```\n" + "\n    │\n".join(blocks) + "\n```\n"


def replace_picture(page: str, picture: str) -> str:
    """Return the page with the picture between the two marks."""
    before, rest = page.split(BEGIN, 1)
    return before + BEGIN + picture + END + rest.split(END, 1)[1]


def write_pages() -> None:
    """Write the picture into both pages."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        path.write_text(replace_picture(text, render_layers(LAYERS)), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
