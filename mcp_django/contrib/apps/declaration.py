"""Declarations of apps: `app("cart", template="shop/cart.html")`.

An app belongs to the registry of a server, as tools do. The tools with `ui="cart"` are shown by it.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakKeyDictionary

from mcp_django.contrib.apps.csp import CSP, CSPOption, parse_csp
from mcp_django.extensions.calls import Server
from mcp_django.extensions.errors import ConflictError, DeclarationError
from mcp_django.extensions.primitives import CombinedRegistry, Registry, Tool, check_app_name, get_registry

BrowserPermission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
BROWSER_PERMISSIONS: tuple[BrowserPermission, ...] = ("camera", "microphone", "geolocation", "clipboardWrite")


@dataclass(frozen=True, kw_only=True, eq=False)
class App:
    """HTML that clients show for the results of tools."""

    name: str
    template: str
    title: str | None = None
    description: str | None = None
    csp: CSP = field(default_factory=CSP)
    permissions: Sequence[BrowserPermission] = ()
    """Features of the browser that the app uses."""
    prefers_border: bool | None = None
    """True for a border around the app; None for the client's default."""
    domain: str | None = None
    """Origin that a client gives to the app, in the format of this client."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the template; the same for all users."""
    source: str = ""

    def to_meta(self) -> dict[str, Any]:
        """Return the `_meta` of its resources. Raises DeclarationError."""
        members: dict[str, Any] = {
            "csp": self.csp.to_wire() or None,
            "permissions": {name: {} for name in self.permissions} or None,
            "domain": self.domain,
            "prefersBorder": self.prefers_border,
        }
        ui = {name: value for name, value in members.items() if value is not None}
        return {"ui": ui} if ui else {}


CONFIRMATION = App(
    name="confirmation",
    template="mcp_apps/confirmation.html",
    title="Confirmation",
    description="Shows the question of a tool to the user, and sends the answer",
    source="app 'confirmation' of mcp_django.contrib.apps",
)
"""App of tools that let the user confirm a call, and of those with `ui="confirmation"`."""

MODEL_APP_PREFIX = "model-"
_MODEL_APP_TITLES = {"table": "Table", "card": "Card", "form": "Form", "chart": "Chart"}
BUILT_IN_APPS = {
    CONFIRMATION.name: CONFIRMATION,
    **{
        f"{MODEL_APP_PREFIX}{kind}": App(
            name=f"{MODEL_APP_PREFIX}{kind}",
            template=f"mcp_apps/model/{kind}.html",
            title=title,
            source=f"app '{MODEL_APP_PREFIX}{kind}' of mcp_django.contrib.apps",
        )
        for kind, title in _MODEL_APP_TITLES.items()
    },
}
"""Apps of every server by name. A project may declare other apps of these names."""

_APPS: "WeakKeyDictionary[Registry, dict[str, App]]" = WeakKeyDictionary()


def app(
    name: str,
    *,
    template: str,
    server: str | Server = "default",
    title: str | None = None,
    description: str | None = None,
    csp: CSPOption = None,
    permissions: Sequence[BrowserPermission] = (),
    prefers_border: bool | None = None,
    domain: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> App | None:
    """Declare an app: a template that clients show for the results of the tools with `ui=name`.

    `server` is the alias in `MCP["SERVERS"]`, or a Server. The template is rendered without a request and a user, since
    clients cache it. Its data come from the results of tools. `csp` lists the origins that it loads from: "static" for
    the origin of `STATIC_URL`, a dict, or `CSP(...)`. `permissions` lists features of the browser, such as "camera".

    Returns None if the declaration is refused, which the system checks report.
    """
    registry = get_own_registry(server.registry if isinstance(server, Server) else get_registry(server))
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    source = f"app {name!r}" if caller is None else f"app {name!r} of {caller.f_globals.get('__name__', '')}"
    added: App | None = None
    with registry.collect_errors(source):
        declared = App(
            name=check_app_name(source, name),
            template=_check_template(source, template),
            title=title,
            description=description,
            csp=parse_csp(source, csp),
            permissions=_check_permissions(source, permissions),
            prefers_border=prefers_border,
            domain=domain,
            context=dict(context or {}),
            source=source,
        )
        add_app(registry, declared)
        added = declared
    return added  # noqa: RET504  None if the context has collected an error


def add_app(registry: Registry, declared: App) -> None:
    """Add an app to a registry. Raises ConflictError if the name is taken."""
    known = _APPS.setdefault(get_own_registry(registry), {})
    taken = known.get(declared.name)
    if taken is not None:
        raise ConflictError(f"{declared.source}: the server already has the {taken.source}")
    known[declared.name] = declared
    registry.version += 1


def get_own_registry(registry: Registry) -> Registry:
    """Return the registry without those of mounted servers."""
    return registry.own if isinstance(registry, CombinedRegistry) else registry


def list_apps(registry: Registry) -> list[App]:
    """Return the apps that are declared in a registry, without those of mounted servers."""
    return list(_APPS.get(get_own_registry(registry), {}).values())


def find_app(tool: Tool, registry: Registry) -> App | None:
    """Return the app of a tool that `registry` serves, or None.

    A tool of a mounted server has an app of that server, or else of a server around it.
    """
    name = _get_app_name(tool)
    if name is None:
        return None
    registries = [registry]
    item: Any = tool
    while item.mount_origin is not None:
        registries.append(item.mount_origin.mount.server.registry)
        item = item.mount_origin.primitive
    for one in reversed(registries):
        found = _APPS.get(get_own_registry(one), {}).get(name)
        if found is not None:
            return found
    return BUILT_IN_APPS.get(name)


def expects_question(tool: Tool) -> bool:
    """Return True if the result of a tool may be a question in its app, by its declaration."""
    return _get_app_name(tool) == CONFIRMATION.name or (tool.confirm is True and tool.ui is not None)


def _get_app_name(tool: Tool) -> str | None:
    """Return the name of the app of a tool.

    A tool for apps only needs none: the calling app shows its questions.
    """
    if tool.ui is not None and (tool.ui.app is not None or not tool.ui.is_for_model):
        return tool.ui.app
    return CONFIRMATION.name if tool.confirm is True else None


def _check_template(where: str, template: Any) -> str:
    if isinstance(template, str) and template:
        return template
    raise DeclarationError(f"{where}: template={template!r} must be the name of a template, such as 'shop/cart.html'")


def _check_permissions(where: str, permissions: Any) -> tuple[BrowserPermission, ...]:
    if isinstance(permissions, str) or not all(name in BROWSER_PERMISSIONS for name in permissions):
        raise DeclarationError(
            f"{where}: permissions={permissions!r} is invalid; use a list of {', '.join(BROWSER_PERMISSIONS)}. "
            "The permission of an app is that of its tools"
        )
    return tuple(permissions)
