"""Admin pages of the memory: stored data can be viewed and deleted, not edited.

Titles, texts and messages require the view permission. The change permission, which implies it elsewhere in the admin,
is not enough.
"""

import json
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_permission_codename, get_user_model
from django.db import transaction
from django.db.models import Count, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from mcp_django.contrib.memory.privacy import erase_owners
from mcp_django.contrib.memory.quotas import notify_owner
from mcp_django.html_pages import clean_views
from mcp_django.types import clean_line, clean_text

DATE_LOOKUPS = ("year", "month", "day", "gte", "lt")
"""Lookups of Django's filter by date, and of its links to years, months and days."""


class ExpiryFilter(admin.SimpleListFilter):
    """Filter for entries that are live or expired."""

    title = _("expiry")
    parameter_name = "expiry"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("never", _("never")), ("some day", _("some day")), ("expired", _("expired"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "never":
                return queryset.filter(expires=None)
            case "some day":
                return queryset.filter(expires__gt=timezone.now())
            case "expired":
                return queryset.filter(expires__lte=timezone.now())
        return queryset


class CategoryFilter(admin.SimpleListFilter):
    """Filter by category."""

    title = _("category")
    parameter_name = "category"
    UNCATEGORIZED = " "
    """Value for facts without a category. Categories have no spaces around them."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        categories = Fact.objects.order_by("category").values_list("category", flat=True).distinct()
        return [(category or self.UNCATEGORIZED, category or _("no category")) for category in categories]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        return queryset.filter(category="" if value == self.UNCATEGORIZED else value)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # it takes none at run time
    """Admin that can view and delete only."""

    class Media:
        css = {"all": ["mcp_django/admin.css"]}

    @property
    def urls(self) -> list[Any]:
        """URL patterns of the pages, which have no invisible characters."""
        return clean_views(super().urls)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow the filters of the list and its dates. Other lookups match parts of texts."""
        filters = {getattr(item, "parameter_name", None) for item in self.list_filter}
        return lookup in filters or lookup in {f"{self.date_hierarchy}__{name}" for name in DATE_LOOKUPS}

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.{get_permission_codename('view', self.opts)}"))


@admin.register(Owner)
class OwnerAdmin(ReadOnlyAdmin):
    """Owners with the amount of their data, but not its content.

    Deleting an owner erases its data.
    """

    list_display = ["key", "user", "conversation_count", "fact_count", "kept", "created", "written"]
    list_select_related = ["user"]
    fields = readonly_fields = ("key", "user", "conversation_count", "fact_count", "kept", "created", "written")

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return ["key", f"user__{get_user_model().USERNAME_FIELD}"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Owner]:
        counts = {
            name: Coalesce(Subquery(_of_owner(rows).annotate(n=what).values("n")), 0)
            for name, rows, what in [
                ("conversations_kept", Conversation.objects, Count("pk")),
                ("facts_kept", Fact.objects, Count("pk")),
                ("conversation_bytes", Conversation.objects, Sum("size")),
                ("fact_bytes", Fact.objects, Sum("size")),
            ]
        }
        owners: QuerySet[Owner] = super().get_queryset(request).annotate(**counts)
        return owners.annotate(bytes_kept=F("conversation_bytes") + F("fact_bytes"))

    @admin.display(description=_("conversations"), ordering="conversations_kept")
    def conversation_count(self, owner: Any) -> int:
        """Return the number of conversations, including expired ones."""
        return int(owner.conversations_kept)

    @admin.display(description=_("facts"), ordering="facts_kept")
    def fact_count(self, owner: Any) -> int:
        """Return the number of facts, including expired ones."""
        return int(owner.facts_kept)

    @admin.display(description=_("size"), ordering="bytes_kept")
    def kept(self, owner: Any) -> str:
        """Return the total size."""
        return filesizeformat(owner.bytes_kept)

    def delete_model(self, request: HttpRequest, obj: Owner) -> None:
        erase_owners(Owner.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Owner]) -> None:
        erase_owners(Owner.objects.filter(pk__in=list(queryset.values_list("pk", flat=True))))


class EntryAdmin(ReadOnlyAdmin):
    """Common base of the admins of conversations and facts."""

    list_select_related = ["owner", "owner__user"]
    date_hierarchy = "updated"

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return ["=name", "owner__key", f"owner__user__{get_user_model().USERNAME_FIELD}"]

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search by owner and id, or by words of the content."""
        found, repeats = super().get_search_results(request, queryset, search_term)
        return (found | queryset.with_words(search_term) if search_term else found), repeats

    @admin.display(description=_("owner"), ordering="owner__key")
    def whose(self, entry: Any) -> str:
        """Return the user, or the key of an owner without one."""
        owner: Owner = entry.owner
        return owner.key if owner.user is None else str(owner.user.get_username())

    @admin.display(description=_("tags"))
    def tag_words(self, entry: Any) -> str:
        """Return the tags as one line."""
        return ", ".join(entry.tag_list)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        notify_owner(obj.owner.key, [obj.uri])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        rows = list(queryset.select_related("owner"))
        with transaction.atomic(using=queryset.db):
            super().delete_queryset(request, queryset)
            for row in rows:
                notify_owner(row.owner.key, [row.uri])


@admin.register(Conversation)
class ConversationAdmin(EntryAdmin):
    """Admin of conversations."""

    list_display = ["name", "title", "whose", "message_count", "tag_words", "size", "updated", "expires"]
    list_filter = [ExpiryFilter, "updated"]
    readonly_fields = (
        "name",
        "title",
        "whose",
        "tag_words",
        "transcript",
        "metadata_text",
        "size",
        "created",
        "updated",
        "expires",
    )
    fields = readonly_fields

    @admin.display(description=_("messages"))
    def transcript(self, conversation: Conversation) -> str:
        """Return the messages as readable text."""
        lines = [
            f"{clean_line(message.get('name') or message.get('role') or '')}: {_readable(message.get('content'))}"
            for message in conversation.messages
        ]
        return format_html('<div class="mcp-transcript">{}</div>', "\n\n".join(lines))

    @admin.display(description=_("metadata"))
    def metadata_text(self, conversation: Conversation) -> str:
        """Return the metadata as JSON."""
        return format_html("<pre>{}</pre>", _readable(conversation.metadata))


@admin.register(Fact)
class FactAdmin(EntryAdmin):
    """Admin of facts."""

    list_display = ["name", "text", "category", "whose", "tag_words", "size", "updated", "expires"]
    list_filter = [ExpiryFilter, CategoryFilter, "updated"]
    fields = readonly_fields = (
        "name",
        "text",
        "category",
        "whose",
        "tag_words",
        "size",
        "created",
        "updated",
        "expires",
    )


def _of_owner(rows: Any) -> Any:
    return rows.filter(owner=OuterRef("pk")).order_by().values("owner")


def _readable(value: Any) -> str:
    return clean_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))
