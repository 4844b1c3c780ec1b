"""Kinds of primitives, and the entries of a server as the acting user sees them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _

from mcp_django.admin.access.table import list_hidden
from mcp_django.contrib.playground.messages import list_all, send
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.extensions.errors import MCPError, Overloaded
from mcp_django.extensions.primitives import UriTemplate
from mcp_django.protocol.skills import LIST_METHOD, SKILLS_IDENTIFIER

APPS_IDENTIFIER = "io.modelcontextprotocol/ui"
URI_SCHEMA = {"properties": {"uri": {"type": "string", "title": "URI"}}, "required": ["uri"]}


class ListedPrimitive(NamedTuple):
    """Tool, resource, template, prompt or skill, as the server lists it to the acting user."""

    key: str
    raw: Mapping[str, Any]
    wire: Mapping[str, Any] = {}
    """Entry of a skill as the server sent it; `raw` has its frontmatter, too."""

    @property
    def title(self) -> str:
        """Title for people."""
        return str(self.raw.get("title") or self.raw.get("name") or self.key)

    @property
    def description(self) -> str:
        """Description for the model."""
        return str(self.raw.get("description", ""))

    @property
    def may_write(self) -> bool:
        """True for a tool without the hint that it only reads."""
        return "inputSchema" in self.raw and self.raw.get("annotations", {}).get("readOnlyHint") is not True

    @property
    def app_uri(self) -> str | None:
        """URI of the app of a tool, or None."""
        ui = self.raw.get("_meta", {}).get("ui")
        found = ui.get("resourceUri") if isinstance(ui, Mapping) else None
        return found if isinstance(found, str) else None

    @property
    def template(self) -> UriTemplate | None:
        """Template with a field for each variable; None for other entries, and for templates of other forms."""
        try:
            template = UriTemplate(str(self.raw["uriTemplate"])) if "uriTemplate" in self.raw else None
        except ValueError:
            return None
        return None if template is None or template.is_static else template

    def build_schema(self) -> Mapping[str, Any]:
        """Return the schema of its arguments."""
        if "inputSchema" in self.raw:
            schema: Mapping[str, Any] = self.raw["inputSchema"]
            return schema
        template = self.template
        if template is not None:
            required = [name for name in template.variables if name not in template.query_variables]
            return {"properties": {name: {"type": "string"} for name in template.variables}, "required": required}
        if "uri" in self.raw or "uriTemplate" in self.raw:
            return URI_SCHEMA
        arguments = self.raw.get("arguments", ())
        return {
            "properties": {each["name"]: {**each, "type": "string"} for each in arguments},
            "required": [each["name"] for each in arguments if each.get("required")],
        }

    def get_start(self) -> dict[str, Any]:
        """Return the arguments to start with."""
        start = self.raw.get("uri") or self.raw.get("uriTemplate")
        return {"uri": str(start)} if self.build_schema() is URI_SCHEMA else {}

    def build_params(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params of the request that uses it. Raises ValueError if a template has no URI for them."""
        template = self.template
        if template is not None:
            return {"uri": _expand(template, arguments)}
        if "uri" in self.raw or "uriTemplate" in self.raw:
            return dict(arguments)
        return {"name": self.key, "arguments": dict(arguments)}


class Kind(NamedTuple):
    """Kind of primitives, with the methods that list and use them."""

    name: str
    title: Any
    method: str
    """Method that uses one of them."""
    lists: tuple[tuple[str, str], ...]
    """Methods that list them, and the keys of the results."""
    inspected: tuple[str, ...]
    """Kinds of the same primitives in `InspectedPrimitive`."""
    extension: str | None = None
    """Identifier of the extension that a server must have; None for all servers."""
    is_selected: Callable[[ListedPrimitive], bool] = lambda entry: True
    """Function that returns True for the entries of the kind."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("tools", _("Tools"), "tools/call", (("tools/list", "tools"),), ("tool",)),
        Kind(
            "resources",
            _("Resources"),
            "resources/read",
            (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")),
            ("resource", "template"),
        ),
        Kind("prompts", _("Prompts"), "prompts/get", (("prompts/list", "prompts"),), ("prompt",)),
        Kind(
            "apps",
            _("Apps"),
            "tools/call",
            (("tools/list", "tools"),),
            (),
            APPS_IDENTIFIER,
            lambda entry: entry.app_uri is not None,
        ),
        Kind("skills", _("Skills"), "resources/read", ((LIST_METHOD, "skills"),), (), SKILLS_IDENTIFIER),
    )
}


class HiddenPrimitive(NamedTuple):
    """Primitive that the acting user does not see."""

    key: str
    reason: str
    """First condition that does not hold, in English."""


class ListRow(NamedTuple):
    """Row of the list on the page."""

    key: str
    text: str
    """Text that the filter searches."""
    reason: str
    """Reason why the acting user does not see it, or empty."""
    is_filtered_out: bool


def load_capabilities(alias: str, principal: DjangoPrincipal) -> Mapping[str, Any]:
    """Return the capabilities that the server declares."""
    result = send(alias, principal, "server/discover", {}).result or {}
    found = result.get("capabilities")
    return found if isinstance(found, Mapping) else {}


def list_kinds(capabilities: Mapping[str, Any]) -> list[Kind]:
    """Return the kinds that a server has."""
    extensions = capabilities.get("extensions", {})
    return [kind for kind in KINDS.values() if kind.extension is None or kind.extension in extensions]


def list_entries(alias: str, principal: DjangoPrincipal, kind: Kind) -> list[ListedPrimitive]:
    """Return the entries of a kind, as the principal sees them."""
    entries = [_build_entry(raw) for method, key in kind.lists for raw in list_all(alias, principal, method, key)]
    return [entry for entry in entries if kind.is_selected(entry)]


def find_entry(entries: Iterable[ListedPrimitive], kind: Kind, key: str | None) -> ListedPrimitive | None:
    """Return the entry of a key. A resource need not be listed: the server decides when it is read."""
    found = next((entry for entry in entries if entry.key == key), None)
    if found is None and kind.name == "resources" and key and ":" in key and "{" not in key:
        return ListedPrimitive(key, {"uri": key})
    return found


def list_hidden_entries(
    alias: str, principal: DjangoPrincipal, kind: Kind, shown: Collection[ListedPrimitive]
) -> list[HiddenPrimitive]:
    """Return the primitives of a kind that the principal does not see, with the first reason for each."""
    known = {entry.key for entry in shown}
    try:
        found = list_hidden(alias, principal) if kind.inspected else []
    except (MCPError, Overloaded):
        return []
    return [
        HiddenPrimitive(one.key, one.verdict) for one in found if one.kind in kind.inspected and one.key not in known
    ]


def build_list_rows(
    entries: Iterable[ListedPrimitive], hidden: Iterable[HiddenPrimitive], filter_text: str
) -> list[ListRow]:
    """Return the rows of a list, those that the user does not see after the others."""
    texts = [(entry.key, f"{entry.key} {entry.title}", "") for entry in entries]
    texts += [(one.key, one.key, one.reason) for one in hidden]
    wanted = filter_text.casefold()
    return [ListRow(key, text, reason, wanted not in text.casefold()) for key, text, reason in texts]


def _build_entry(raw: Mapping[str, Any]) -> ListedPrimitive:
    frontmatter = raw.get("frontmatter")
    shown = {**frontmatter, **raw} if isinstance(frontmatter, Mapping) else raw
    return ListedPrimitive(str(raw.get("uri") or raw.get("uriTemplate") or raw.get("name", "")), shown, raw)


def _expand(template: UriTemplate, arguments: Mapping[str, Any]) -> str:
    for name, value in arguments.items():
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name}: must be text, or a list of texts")
    return template.expand(arguments)
