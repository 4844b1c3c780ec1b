"""The interface between the comparison and a project."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import models

from mcp_django import ModelToolset


@dataclass(frozen=True, kw_only=True)
class ViewList:
    """A tool that lists rows of a view, and the address of the same list in the project's API."""

    tool: str
    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Site:
    """Rows, users and rules of a project."""

    kinds: Sequence[type[models.Model]]
    """Models to expose."""
    users: Mapping[str, Any]
    """Users by name."""
    get_visible_rows: Callable[[Any, type[models.Model]], "models.QuerySet[Any]"]
    """Function of a user and a model: the rows that the project itself shows the user."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Models without rows, each with the reason."""
    base: type[ModelToolset] = ModelToolset
    """Base class of the toolsets."""
    expose_views: Callable[[], list[ViewList]] = list
    """Function that exposes the views of the project's API on the server `views`, and returns their lists."""
    check_writes: Callable[["Site"], list[str]] = lambda site: []
    """Function that writes rows by tools, and returns differences from the writes of the project's own API."""
