"""Apps whose views are written by hand: a good one, one that breaks the policy, and a hostile one.

Each writes its observations into `data-` attributes of its body.
"""

import os
from pathlib import Path
from typing import Any

from mcp_django import Context, resource, tool

VIEW = "text/html;profile=mcp-app"
VIEWS = Path(__file__).with_name("views")
COLLECTOR = f"{os.environ['HOST_ORIGINS'].split()[0]}/collect"
"""Where a hostile view sends its findings."""


def declare_view(name: str) -> None:
    """Declare `ui://hosting/NAME` and the tool `show_NAME`, which repeats its text."""

    @resource(f"ui://hosting/{name}", name=f"{name}_view", mime_type=VIEW)
    def view() -> str:
        html = (VIEWS / "bridge.html").read_text() + (VIEWS / f"{name}.html").read_text()
        return html.replace("WSCOLLECTOR", COLLECTOR.replace("http", "ws", 1)).replace("COLLECTOR", COLLECTOR)

    @tool(name=f"show_{name}", meta={"ui": {"resourceUri": f"ui://hosting/{name}"}})
    def show(ctx: Context, text: str = "") -> dict[str, Any]:
        """Show a view."""
        return {"text": text, "user": str(ctx.user)}


for name in ("good", "careless", "hostile"):
    declare_view(name)


@tool(meta={"ui": {"visibility": ["model"]}})
def model_only() -> str:
    """Return a text. A view may not call this tool."""
    return "for the model"
