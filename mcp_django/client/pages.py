"""Pages of lists without the entries that are none, so that one of them does not spoil the others."""

import logging
from typing import Any

from mcp_types.methods import validate_server_result

logger = logging.getLogger("mcp_django.client")

MEMBERS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""Methods that list, and the member of a page that has the entries."""
_REST = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What else a page needs to be one, in some revision."""


class Pages:
    """The pages of one connection. What is left out is warned of once for each list."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._told: set[str] = set()

    def cleaned(self, method: str, version: str, page: dict[str, Any]) -> dict[str, Any]:
        """The page of a list without the entries that are not what the revision says."""
        member = MEMBERS[method]
        entries = page.get(member)
        if type(entries) is not list or _fits(method, version, entries):
            return page
        kept = [entry for entry in entries if _fits(method, version, [entry])]
        if method not in self._told:
            self._told.add(method)
            said = "%s answers %s with entries that the protocol does not allow; %d of %d are left out"
            logger.warning(said, self._server, method, len(entries) - len(kept), len(entries))
        return {**page, member: kept}


def _fits(method: str, version: str, entries: list[Any]) -> bool:
    try:
        validate_server_result(method, version, {**_REST, MEMBERS[method]: entries})
    except ValueError:
        return False
    return True
