"""State of an entry on the page: its form, its links, its message and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from mcp_django.contrib.playground.copies import CopyText
from mcp_django.contrib.playground.forms.schema_forms import ArgumentsForm


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """Values of the templates for an entry; None for those that the page leaves out."""

    form: ArgumentsForm | None = None
    """Form of the arguments; None for a skill."""
    schema: str | None = None
    """JSON Schema of the arguments, as text."""
    arguments: str | None = None
    """Arguments as JSON."""
    error: str | None = None
    uri: str | None = None
    """URI of a template with its variables."""
    entry_url: str | None = None
    call_link: str | None = None
    """Query of a link that opens the form with the arguments."""
    hosts_app: bool | None = None
    """True if the page can show the app of the tool; None without an app."""
    acts_alone: bool | None = None
    """True if the acting user is the operator."""
    preview_link: str | None = None
    message: str | None = None
    """Request as JSON."""
    copies: Sequence[CopyText] | None = None
    revision: str | None = None
    """Revision of the client; None for that of the posted form."""
    log_level: str | None = None
    """Log level of the client; None for that of the posted form."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Context of the template for a result, or for the files of a skill."""

    def build_context(self) -> dict[str, Any]:
        """Return the context of the templates."""
        names = [each.name for each in fields(self) if each.name != "details"]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None} | dict(self.details)
