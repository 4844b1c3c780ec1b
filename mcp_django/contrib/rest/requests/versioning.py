"""API version of a call, sent where the view's versioning class expects it."""

from dataclasses import dataclass, replace
from typing import Any

from rest_framework import versioning

from mcp_django.contrib.http_tools.tools import Schema


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """Location and choice of a view's API version."""

    location: str
    """Location: "path", "accept", "query", "namespace", or "" if calls do not send it."""
    param: str = "version"
    """Name of the argument and of the parameter."""
    fixed: str | None = None
    """Version set by `expose(version=…)`."""
    default: str | None = None
    allowed: tuple[str, ...] = ()

    @property
    def is_argument(self) -> bool:
        """Return True if the caller chooses the version."""
        return bool(self.location) and self.fixed is None

    @property
    def schema(self) -> Schema:
        """Return the schema of the argument."""
        schema: Schema = {"type": "string", "description": "Version of the API"}
        choices = [version for version in dict.fromkeys((self.default, *self.allowed)) if version is not None]
        if self.allowed:
            schema["enum"] = choices
        if self.default is not None:
            schema["default"] = self.default
        return schema

    def fix_default(self) -> "ApiVersion":
        """Return the version without the argument, if it has a default.

        An argument for a field of the body takes its place.
        """
        return self if self.default is None else replace(self, fixed=self.fixed or self.default)

    def choose(self, given: str | None) -> str | None:
        """Return the version of a call, or None for the view's own default."""
        return self.fixed or given or self.default


_LOCATIONS: tuple[tuple[type[Any], str], ...] = (
    (versioning.URLPathVersioning, "path"),
    (versioning.NamespaceVersioning, "namespace"),
    (versioning.AcceptHeaderVersioning, "accept"),
    (versioning.QueryParameterVersioning, "query"),
)


def get_api_version(view: Any, fixed: str | None) -> ApiVersion:
    """Return the location and choice of `view`'s API version."""
    scheme = view.versioning_class
    if scheme is None:
        return ApiVersion("")
    place = next((place for kind, place in _LOCATIONS if issubclass(scheme, kind)), "")
    allowed = tuple(str(version) for version in scheme.allowed_versions or ())
    default = None if scheme.default_version is None else str(scheme.default_version)
    return ApiVersion(place, scheme.version_param, fixed, default, allowed)
