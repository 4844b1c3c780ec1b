"""Admin of the authorization server.

- OAuth clients: approve, block, trust and limit them, and pin their documents.
- Consents: operators view and withdraw them; only users give them.
- Codes and tokens in the toolkit's admin: they can be viewed and revoked. A row holds the user, scope and expiry of a
  token. An administrator who could edit them could take over the rights of any user.
"""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from oauth2_provider import admin as _registered  # noqa: F401  # for either order in INSTALLED_APPS

from mcp_django.admin.accounts.sections import AccountSection, SectionCell, add_account_section
from mcp_django.admin.base import LinkedLookups, get_admin_url
from mcp_django.admin.client_access import set_access_manager
from mcp_django.admin.widgets import LinesField, WordsField, replace_by_scope_boxes
from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.flows.access_manager import OAuthAccessManager
from mcp_django.contrib.oauth.models import ClientProfile, Consent
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)
from mcp_django.extensions.admin_pages import BaseAdmin
from mcp_django.models.token import check_scopes
from mcp_django.types import clean_line

TRUST_FIELDS = ("trusted", "service_user")
"""Fields that let a client act for a user without consent."""


class ClientProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form with an operator's decisions about a client."""

    allowed_scopes = WordsField(
        check=check_scopes,
        required=False,
        label=_("Allowed scopes"),
        help_text=_("Scopes that the client may have, separated by spaces. Empty: all declared scopes."),
    )
    allowed_resources = LinesField(
        required=False,
        label=_("Allowed servers"),
        help_text=_("Servers that the client may get tokens for, one URL per line. Empty: all."),
    )

    class Meta:
        model = ClientProfile
        fields = ["approved", "blocked", "trusted", "service_user", "allowed_scopes", "allowed_resources"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        help_text = _("Scopes that the client may have. Empty: all declared scopes.")
        replace_by_scope_boxes(self, "allowed_scopes", self.instance.allowed_scopes or (), help_text)

    def clean_allowed_scopes(self) -> Any:
        return self.cleaned_data["allowed_scopes"] or None

    def clean_allowed_resources(self) -> Any:
        return self.cleaned_data["allowed_resources"] or None

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("trusted"):
            if self.instance.source != ClientProfile.Source.MANUAL:
                self.add_error("trusted", ValidationError(_("Only clients created by an operator can be trusted.")))
            if data.get("service_user") is None:
                self.add_error("service_user", ValidationError(_("A trusted client needs a service user: select one.")))
        return data


@admin.register(ClientProfile)
class ClientProfileAdmin(BaseAdmin):
    """Clients with a profile.

    Their ids, secrets and redirect URIs belong to the toolkit and are in its admin. Only superusers may set which
    clients are trusted and for which user they act, because a trusted client has all rights of that user.
    """

    form = ClientProfileForm
    list_display = ["client", "source", "redirect_hosts", "standing", "last_used", "created"]
    list_filter = ["source", "approved", "blocked", "trusted"]
    list_select_related = ["application", "service_user"]
    search_fields = ["application__name", "application__client_id"]
    date_hierarchy = "created"
    raw_id_fields = ["service_user"]
    can_add = False  # clients register, are described by documents, or are created by mcp_createclient
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
    help_texts = {
        "approved": _("An operator approved this client. It is never deleted as unused."),
        "blocked": _("The client gets no tokens, and its existing tokens are invalid."),
        "trusted": _("With a service user, the client gets tokens in that user's name without a consent page."),
        "allowed_scopes": _("Scopes that the client may have. Empty: all declared scopes."),
        "allowed_resources": _("Servers that the client gets tokens for, as URLs. Empty: all."),
    }

    def get_readonly_fields(self, request: HttpRequest, obj: ClientProfile | None = None) -> Any:
        user: Any = request.user
        return [*super().get_readonly_fields(request, obj), *(() if user.is_superuser else TRUST_FIELDS)]

    def get_fieldsets(self, request: HttpRequest, obj: ClientProfile | None = None) -> Any:
        """Omit the document section for clients without a document."""
        fieldsets = super().get_fieldsets(request, obj)
        has_document = obj is not None and obj.source == ClientProfile.Source.DOCUMENT
        return [fieldset for fieldset in fieldsets if has_document or "document" not in fieldset[1]["fields"]]

    @admin.display(description=_("client"), ordering="application__name")
    def client(self, profile: ClientProfile) -> str:
        """Return the name of the client."""
        return clean_line(str(profile.application))

    @admin.display(description=_("client ID"), ordering="application__client_id")
    def client_id(self, profile: ClientProfile) -> str:
        """Return the client's `client_id`."""
        return str(profile.application.client_id)

    @admin.display(description=_("redirects to"))
    def redirect_hosts(self, profile: ClientProfile) -> str:
        """Return the hosts, or schemes of apps, of the redirect URIs."""
        return ", ".join(sorted(set(map(redirects.get_display_host, profile.application.redirect_uris.split()))))

    @admin.display(description=_("decision"))
    def standing(self, profile: ClientProfile) -> str:
        """Return the operator's decision about the client."""
        decisions = (
            (_("blocked"), profile.blocked),
            (_("acts for %s") % profile.service_user, profile.trusted),
            (_("approved"), profile.approved),
        )
        return next((str(text) for text, is_set in decisions if is_set), "")

    @admin.display(description=_("redirect URIs"))
    def redirect_uris(self, profile: ClientProfile) -> str:
        """Return the redirect URIs, one per line."""
        return _render_lines(profile.application.redirect_uris.split())

    @admin.display(description=_("type"))
    def kind(self, profile: ClientProfile) -> str:
        """Return the application type sent by the client, and its client type."""
        application_type = profile.get_application_type_display()
        return f"{application_type}, {profile.application.get_client_type_display()}"

    @admin.display(description=_("pages"))
    def links(self, profile: ClientProfile) -> str:
        """Return the client's links as plain text, because they are untrusted."""
        return _render_lines(filter(None, (profile.client_uri, profile.policy_uri, profile.tos_uri, profile.logo_uri)))

    @admin.display(description=_("requested grants"))
    def grants(self, profile: ClientProfile) -> str:
        """Return the requested grants. In any case, the client only has the code grant."""
        return ", ".join(map(str, profile.requested_grants))

    @admin.display(description=_("document"))
    def document(self, profile: ClientProfile) -> str:
        """Return the URL of the document, and when it is fetched again."""
        if profile.source != ClientProfile.Source.DOCUMENT:
            return ""
        expires = profile.application.cimd_expires_at
        state = _("pinned") if expires is None else _("fetched again after {}").format(f"{expires:%Y-%m-%d %H:%M %Z}")
        return f"{profile.document_url} ({state})"

    def delete_model(self, request: HttpRequest, obj: ClientProfile) -> None:
        """Delete the client too, which would have no limits without its profile."""
        obj.application.delete()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        for profile in queryset.select_related("application"):
            profile.application.delete()

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the objects deleted with the clients.

        Deletion requires the permission for clients, but not for their tokens: the toolkit's admin lets users delete no
        tokens.
        """
        clients = [profile.application for profile in objs]
        to_delete, counts, missing, protected = super().get_deleted_objects(clients, request)
        return to_delete, counts, missing & {get_application_model()._meta.verbose_name}, protected

    @admin.action(description=_("Approve selected clients"), permissions=["change"])
    def approve(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Mark the clients as known. Approved clients are kept even if unused."""
        self._set_flag(request, queryset, "approved", True)

    @admin.action(description=_("Block selected clients"), permissions=["change"])
    def block(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Block the clients: they get no tokens, and their tokens become invalid."""
        self._set_flag(request, queryset, "blocked", True)

    @admin.action(description=_("Unblock selected clients"), permissions=["change"])
    def unblock(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Unblock the clients: they may request consent again."""
        self._set_flag(request, queryset, "blocked", False)

    @admin.action(description=_("Pin the current documents of selected clients"), permissions=["change"])
    def pin(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Keep the clients as their documents describe them now, and stop fetching these."""
        profiles = queryset.filter(source=ClientProfile.Source.DOCUMENT).exclude(application__cimd_expires_at=None)
        self._set_document_expiry(request, profiles, None)

    @admin.action(description=_("Fetch the documents of selected clients again"), permissions=["change"])
    def unpin(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Fetch the documents again on the next authorization request."""
        profiles = queryset.filter(source=ClientProfile.Source.DOCUMENT)
        self._set_document_expiry(request, profiles, timezone.now())

    def _set_flag(self, request: HttpRequest, queryset: QuerySet[ClientProfile], name: str, value: bool) -> None:
        changed = list(queryset.filter(**{name: not value}))
        for profile in changed:
            # Saved one by one, because each save invalidates the cached principals of the client.
            setattr(profile, name, value)
            profile.save(update_fields=[name])
        self._report_changes(request, changed, name)

    def _set_document_expiry(self, request: HttpRequest, queryset: QuerySet[ClientProfile], expires: Any) -> None:
        changed = list(queryset)
        keys = [profile.application_id for profile in changed]
        get_application_model()._base_manager.filter(pk__in=keys).update(cimd_expires_at=expires)
        self._report_changes(request, changed, "document")

    def _report_changes(self, request: HttpRequest, changed: list[ClientProfile], field: str) -> None:
        for profile in changed:
            self.log_change(request, profile, [{"changed": {"fields": [field]}}])
        count = len(changed)
        self.report_count(request, ngettext("%d client was changed.", "%d clients were changed.", count), count)


def _render_lines(texts: Iterable[str]) -> str:
    return format_html_join("\n", "<div>{}</div>", ((text,) for text in texts))


@admin.register(Consent)
class ConsentAdmin(BaseAdmin):
    """List of consents.

    Withdrawing or deleting one ends all access of the client for the user, as on the user's page.
    """

    list_display = ["user", "application", "resource", "redirect_uri", "scope_words", "granted", "expires", "state"]
    list_filter = ["granted", "revoked"]
    list_select_related = ["user", "application"]
    search_fields = ["user", "application__name", "application__client_id", "resource"]
    can_add = False
    can_change = False
    date_hierarchy = "granted"
    actions = ["withdraw"]
    readonly_fields = [
        "user",
        "application",
        "resource",
        "redirect_uri",
        "scope_words",
        "granted",
        "expires",
        "revoked",
        "state",
    ]
    fields = [*readonly_fields]
    help_texts = {"expires": _("After this time, the user is prompted again.")}

    def delete_model(self, request: HttpRequest, obj: Consent) -> None:
        # Without the row, the remaining tokens would be invisible.
        revocation.withdraw_access(obj.user, obj.application)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Consent]) -> None:
        for consent in queryset:
            revocation.withdraw_access(consent.user, consent.application)
        super().delete_queryset(request, queryset)

    @admin.display(description=_("scopes"))
    def scope_words(self, consent: Consent) -> str:
        """Return the scopes in one line."""
        return " ".join(consent.scopes)

    @admin.display(description=_("state"))
    def state(self, consent: Consent) -> str:
        """Return the state: withdrawn, remembered, or requested again."""
        if consent.revoked is not None:
            return str(_("withdrawn"))
        remembered = consent.expires is not None and consent.expires > timezone.now()
        return str(_("remembered") if remembered else _("expired"))

    @admin.action(description=_("Withdraw selected consents and revoke the tokens"), permissions=["manage"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Consent]) -> None:
        """End all access of the clients of these consents for their users."""
        pairs: dict[Any, tuple[Any, Any]] = {
            (consent.user_id, consent.application_id): (consent.user, consent.application)
            for consent in queryset.select_related("user", "application").filter(revoked=None)
        }
        for user, application in pairs.values():
            revocation.withdraw_access(user, application)
        count = len(pairs)
        self.report_count(
            request, ngettext("%d client lost its access.", "%d clients lost their access.", count), count
        )


class UnchangeableAdmin(LinkedLookups):
    """Mixin that forbids changes in a ModelAdmin of the toolkit, and filters by its columns."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def forbid_token_changes(site: admin.AdminSite) -> None:
    """Forbid changes of codes and tokens in the admin site, as far as it shows them."""
    for model in (get_access_token_model(), get_refresh_token_model(), get_grant_model()):
        if site.is_registered(model):
            admin_class = type(site.get_model_admin(model))
            if not issubclass(admin_class, UnchangeableAdmin):
                site.unregister(model)
                site.register(model, type(admin_class.__name__, (UnchangeableAdmin, admin_class), {}))


forbid_token_changes(admin.site)


def build_clients_section(request: HttpRequest, user: Any) -> AccountSection | None:
    """Return the clients that act for a service account with client credentials; None without any."""
    if not request.user.has_perm("mcp_oauth.view_clientprofile"):
        return None
    profiles = ClientProfile.objects.select_related("application").filter(service_user=user, trusted=True)
    rows = [
        [
            SectionCell(
                clean_line(str(profile.application)),
                get_admin_url(request, "mcp_oauth_clientprofile_change", profile.pk),
            ),
            SectionCell(_("no") if profile.blocked else _("yes")),
        ]
        for profile in profiles
    ]
    columns = (_("Name"), _("allowed"))
    return AccountSection(name="clients", title=_("OAuth clients"), columns=columns, rows=rows) if rows else None


add_account_section(build_clients_section)
set_access_manager(OAuthAccessManager())
