"""Build hook: the README as a package index shows it, without relative links.

An index shows the README alone, so a link to a file of the repository leads nowhere there. The hook replaces each such
link by its text and the path of the file, which is part of the source distribution.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|mailto:|#)([^)#]+)(?:#[^)]*)?\)")


class ReadmeHook(MetadataHookInterface):
    """Set the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read README.md and replace its relative links."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": RELATIVE_LINK.sub(r"\1 (`\2`)", text),
        }
