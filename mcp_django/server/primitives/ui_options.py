"""Options of tools with an app: HTML that a client shows for their results."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import describe_source

Visibility = Literal["model", "app"]
VISIBILITIES: tuple[Visibility, ...] = ("model", "app")
"""Parties that may use a tool: the model, and the apps of the same server."""
APP_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_.\-]{0,62}[a-z0-9]|[a-z0-9]")
"""Names of apps are part of their URIs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UIOptions:
    """App and visibility of a tool. They take effect on servers with the extension for apps."""

    app: str | None = None
    """Name of the app that shows the results."""
    visibility: tuple[Visibility, ...] = VISIBILITIES
    """Parties to which a client offers the tool.

    It is no permission: the server cannot distinguish the parties.
    """

    @property
    def is_for_model(self) -> bool:
        """Return True if clients offer the tool to their model."""
        return "model" in self.visibility


def parse_ui(declared: object, ui: Any, visibility: object) -> UIOptions | None:
    """Convert the options `ui` and `visibility` of a declaration. Raises DeclarationError."""
    if ui is None and visibility is None:
        return None
    where = describe_source(declared)
    if ui is not None:
        check_app_name(where, ui)
    return UIOptions(app=ui, visibility=VISIBILITIES if visibility is None else _parse_visibility(where, visibility))


def check_app_name(where: str, name: object) -> str:
    """Return the name of an app if it is valid. Raises DeclarationError."""
    if isinstance(name, str) and APP_NAME_PATTERN.fullmatch(name):
        return name
    raise DeclarationError(
        f"{where}: the app name {name!r} must have 1 to 64 lowercase letters, digits, or _ - . between them"
    )


def _parse_visibility(where: str, visibility: object) -> tuple[Visibility, ...]:
    given = tuple(visibility) if isinstance(visibility, Sequence) and not isinstance(visibility, str) else ()
    if not given or any(one not in VISIBILITIES for one in given):
        raise DeclarationError(
            f'{where}: visibility={visibility!r} is invalid; use a list of "model" and "app", such as ["app"]'
        )
    return tuple(one for one in VISIBILITIES if one in given)


def list_app_uris(meta: object) -> list[str]:
    """Return the URIs of pages to which the `_meta` of a tool links, in both forms."""
    if not isinstance(meta, Mapping):
        return []
    ui = meta.get("ui")
    links = (ui.get("resourceUri") if isinstance(ui, Mapping) else None, meta.get("ui/resourceUri"))
    return [uri for uri in links if isinstance(uri, str)]


def remove_app_uris(meta: JSONMapping) -> JSONObject:
    """Return the `_meta` of a tool without links to pages, in both forms."""
    kept = {key: value for key, value in meta.items() if key != "ui/resourceUri"}
    ui = kept.get("ui")
    if isinstance(ui, Mapping):
        kept["ui"] = {key: value for key, value in ui.items() if key != "resourceUri"}
    return kept


def convert_app_uris(meta: JSONMapping, convert: Callable[[str], str]) -> JSONObject:
    """Return the `_meta` of a tool with converted URIs of its page. `convert` may raise DeclarationError.

    A link that is no text is left out.
    """
    converted = dict(meta)
    ui = converted.get("ui")
    if isinstance(ui, Mapping) and "resourceUri" in ui:
        uri = ui["resourceUri"]
        link = {"resourceUri": convert(uri)} if isinstance(uri, str) else {}
        converted["ui"] = {**{key: value for key, value in ui.items() if key != "resourceUri"}, **link}
    flat = converted.pop("ui/resourceUri", None)  # the form of old hosts
    return {**converted, "ui/resourceUri": convert(flat)} if isinstance(flat, str) else converted
