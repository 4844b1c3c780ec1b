"""The version of an API that a call is for, said where the view's versioning class looks for it."""

from dataclasses import dataclass
from typing import Any

from rest_framework import versioning

from mcp_django.contrib.rest.schema.fields import Schema


@dataclass(frozen=True, slots=True)
class Version:
    """How a view is told its version."""

    place: str
    """"path", "accept", "query", "namespace"; "" where a call says nothing of it."""
    param: str = "version"
    """The name of the argument, and of the parameter."""
    fixed: str | None = None
    """The one that `expose(version=…)` chose."""
    default: str | None = None
    allowed: tuple[str, ...] = ()

    @property
    def is_asked(self) -> bool:
        """Does the caller choose?"""
        return bool(self.place) and self.fixed is None

    @property
    def schema(self) -> Schema:
        schema: Schema = {"type": "string", "description": "Version of the API"}
        choices = [version for version in dict.fromkeys((self.default, *self.allowed)) if version is not None]
        if self.allowed:
            schema["enum"] = choices
        if self.default is not None:
            schema["default"] = self.default
        return schema

    def chosen(self, given: str | None) -> str | None:
        """The version of a call; None leaves it to the view."""
        return self.fixed or given or self.default


_PLACES: tuple[tuple[type[Any], str], ...] = (
    (versioning.URLPathVersioning, "path"),
    (versioning.NamespaceVersioning, "namespace"),
    (versioning.AcceptHeaderVersioning, "accept"),
    (versioning.QueryParameterVersioning, "query"),
)


def version_of(view: Any, fixed: str | None) -> Version:
    """How `view` is told its version."""
    scheme = view.versioning_class
    if scheme is None:
        return Version("")
    place = next((place for kind, place in _PLACES if issubclass(scheme, kind)), "")
    allowed = tuple(str(version) for version in scheme.allowed_versions or ())
    default = None if scheme.default_version is None else str(scheme.default_version)
    return Version(place, scheme.version_param, fixed, default, allowed)
