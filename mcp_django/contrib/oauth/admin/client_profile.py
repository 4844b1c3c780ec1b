"""Clients in the admin: operators approve, block and trust them, limit them, and pin their documents."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.widgets import LinesField, WordsField
from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.toolkit_compat import applications
from mcp_django.models.token import check_scopes

TRUST = ("trusted", "service_user")
"""What makes a client act for a user who was never asked."""


class ClientProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    """What an operator decides about a client."""

    allowed_scopes = WordsField(
        check=check_scopes,
        required=False,
        label=_("Allowed scopes"),
        help_text=_("The only ones it may have: words with spaces between them. Empty: all that are declared."),
    )
    allowed_resources = LinesField(
        required=False,
        label=_("Allowed servers"),
        help_text=_("The only ones it gets tokens for: a URL on each line. Empty: all."),
    )

    class Meta:
        model = ClientProfile
        fields = ["approved", "blocked", "trusted", "service_user", "allowed_scopes", "allowed_resources"]

    def clean_allowed_scopes(self) -> Any:
        return self.cleaned_data["allowed_scopes"] or None

    def clean_allowed_resources(self) -> Any:
        return self.cleaned_data["allowed_resources"] or None

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if found.get("trusted"):
            if self.instance.source != ClientProfile.Source.MANUAL:
                self.add_error("trusted", ValidationError(_("Nobody vouches for a client that came by itself.")))
            if found.get("service_user") is None:
                self.add_error("service_user", ValidationError(_("Trusted clients act for a user of their own.")))
        return found


@admin.register(ClientProfile)
class ClientProfileAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # it takes none at run time
    """The clients that have a profile. Their ids, secrets and redirect URIs are the toolkit's, and in its admin.

    Only superusers say which clients are trusted, and whom these act for: such a client has all rights of that user.
    """

    form = ClientProfileForm
    list_display = ["client", "source", "redirect_hosts", "standing", "last_used", "created"]
    list_filter = ["source", "approved", "blocked", "trusted"]
    list_select_related = ["application", "service_user"]
    search_fields = ["application__name", "application__client_id"]
    date_hierarchy = "created"
    raw_id_fields = ["service_user"]
    actions = ["approve", "block", "unblock", "pin", "unpin"]
    fieldsets = [
        (None, {"fields": ["client", "client_id", "source", "redirect_uris", "kind", "links", "grants"]}),
        (_("Decisions"), {"fields": [*ClientProfileForm.Meta.fields]}),
        (_("Document"), {"fields": ["document", "document_fetched"]}),
        (_("Use"), {"fields": ["created", "created_ip", "last_used"]}),
    ]
    readonly_fields = [
        *("client", "client_id", "source", "redirect_uris", "kind", "links", "grants"),
        *("document", "document_fetched", "created", "created_ip", "last_used"),
    ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # they register, are described by documents, or are made by mcp_createclient

    def get_readonly_fields(self, request: HttpRequest, obj: ClientProfile | None = None) -> Any:
        asked: Any = request.user
        return [*super().get_readonly_fields(request, obj), *(() if asked.is_superuser else TRUST)]

    def get_fieldsets(self, request: HttpRequest, obj: ClientProfile | None = None) -> Any:
        """Of documents nothing is said where there is none."""
        found = super().get_fieldsets(request, obj)
        described = obj is not None and obj.source == ClientProfile.Source.DOCUMENT
        return [one for one in found if described or "document" not in one[1]["fields"]]

    @admin.display(description=_("client"), ordering="application__name")
    def client(self, profile: ClientProfile) -> str:
        """Its name."""
        return str(profile.application)

    @admin.display(description=_("client ID"), ordering="application__client_id")
    def client_id(self, profile: ClientProfile) -> str:
        """What it calls itself in requests."""
        return str(profile.application.client_id)

    @admin.display(description=_("leads to"))
    def redirect_hosts(self, profile: ClientProfile) -> str:
        """The hosts, or schemes of apps, that users are sent back to."""
        return ", ".join(sorted(set(map(redirects.host_of, profile.application.redirect_uris.split()))))

    @admin.display(description=_("standing"))
    def standing(self, profile: ClientProfile) -> str:
        """What an operator has decided about it."""
        decided = (
            (_("blocked"), profile.blocked),
            (_("acts for %s") % profile.service_user, profile.trusted),
            (_("approved"), profile.approved),
        )
        return next((str(text) for text, holds in decided if holds), "")

    @admin.display(description=_("redirect URIs"))
    def redirect_uris(self, profile: ClientProfile) -> str:
        """Where users are sent back to, one on each line."""
        return _lines(profile.application.redirect_uris.split())

    @admin.display(description=_("type"))
    def kind(self, profile: ClientProfile) -> str:
        """What it said that it is, and whether it has a secret."""
        said = profile.get_application_type_display()
        return f"{said}, {profile.application.get_client_type_display()}"

    @admin.display(description=_("pages"))
    def links(self, profile: ClientProfile) -> str:
        """Pages about it, as text: a stranger wrote them."""
        return _lines(filter(None, (profile.client_uri, profile.policy_uri, profile.tos_uri, profile.logo_uri)))

    @admin.display(description=_("requested grants"))
    def grants(self, profile: ClientProfile) -> str:
        """What it asked for; it has the code grant and no other, whatever that is."""
        return ", ".join(map(str, profile.requested_grants))

    @admin.display(description=_("document"))
    def document(self, profile: ClientProfile) -> str:
        """Where it is described, and when that is read again."""
        if profile.source != ClientProfile.Source.DOCUMENT:
            return ""
        expires = profile.application.cimd_expires_at
        state = _("pinned") if expires is None else _("read again after {}").format(f"{expires:%Y-%m-%d %H:%M %Z}")
        return f"{profile.document_url} ({state})"

    def delete_model(self, request: HttpRequest, obj: ClientProfile) -> None:
        """Delete the client: without its profile it would be one that nobody limits."""
        obj.application.delete()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        for profile in queryset.select_related("application"):
            profile.application.delete()

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """What goes with the clients. Who may delete these need not be allowed to delete tokens, which nobody may in
        the toolkit's admin.
        """
        clients = [profile.application for profile in objs]
        found, counts, missing, protected = super().get_deleted_objects(clients, request)
        return found, counts, missing & {applications()._meta.verbose_name}, protected

    @admin.action(description=_("Approve selected clients"), permissions=["change"])
    def approve(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """They are known, and stay when they are not used."""
        self._set(request, queryset.filter(approved=False), approved=True)

    @admin.action(description=_("Block selected clients"), permissions=["change"])
    def block(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """They get no tokens, and those that they have are good for nothing."""
        self._set(request, queryset.filter(blocked=False), blocked=True)

    @admin.action(description=_("Unblock selected clients"), permissions=["change"])
    def unblock(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """They may ask users again."""
        self._set(request, queryset.filter(blocked=True), blocked=False)

    @admin.action(description=_("Pin the documents of selected clients as they are"), permissions=["change"])
    def pin(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """They are what their documents say now, and the documents are not fetched any more."""
        found = queryset.filter(source=ClientProfile.Source.DOCUMENT).exclude(application__cimd_expires_at=None)
        self._read_documents_after(request, found, None)

    @admin.action(description=_("Read the documents of selected clients again"), permissions=["change"])
    def unpin(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Their documents are fetched when they next ask a user."""
        found = queryset.filter(source=ClientProfile.Source.DOCUMENT)
        self._read_documents_after(request, found, timezone.now())

    def _set(self, request: HttpRequest, queryset: QuerySet[ClientProfile], **values: Any) -> None:
        # One by one, because what is known of a client's tokens is forgotten when it is saved.
        changed = list(queryset)
        for profile in changed:
            for name, value in values.items():
                setattr(profile, name, value)
            profile.save(update_fields=list(values))
            self.log_change(request, profile, [{"changed": {"fields": list(values)}}])
        self._tell(request, len(changed))

    def _read_documents_after(self, request: HttpRequest, queryset: QuerySet[ClientProfile], expires: Any) -> None:
        changed = list(queryset)
        model = applications()
        keys = [profile.application_id for profile in changed]
        model._base_manager.filter(pk__in=keys).update(cimd_expires_at=expires)
        for profile in changed:
            self.log_change(request, profile, [{"changed": {"fields": ["document"]}}])
        self._tell(request, len(changed))

    def _tell(self, request: HttpRequest, count: int) -> None:
        text = ngettext("%d client was changed.", "%d clients were changed.", count) % count
        self.message_user(request, text, messages.SUCCESS if count else messages.WARNING)


def _lines(texts: Iterable[str]) -> str:
    return format_html_join("\n", "<div>{}</div>", ((text,) for text in texts))
