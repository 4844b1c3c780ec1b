"""Common admin pages of stored prompts and resources: warnings, versions and previews."""

from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import Permission
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django import wiring
from mcp_django.admin.base import BaseAdmin, ServerFilter, build_server_choices
from mcp_django.admin.preview import Preview
from mcp_django.admin.versions import compare_snapshots
from mcp_django.admin.widgets import SuggestingInput, WordsField, replace_by_scope_boxes
from mcp_django.conf import get_settings
from mcp_django.models.stored.base import Stored, check_tags
from mcp_django.models.token import check_scopes
from mcp_django.server.primitives.base import Primitive


def _get_permission_names() -> list[str]:
    """Return all permissions as "app.codename"."""
    permissions = Permission.objects.order_by("content_type__app_label", "codename")
    return [f"{label}.{name}" for label, name in permissions.values_list("content_type__app_label", "codename")]


class StoredForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form fields common to prompts and resources."""

    server = forms.ChoiceField(required=False, label=_("Server"))
    permission = forms.CharField(required=False, label=_("Permission"), widget=SuggestingInput(_get_permission_names))
    scopes = WordsField(
        check=check_scopes,
        required=False,
        label=_("Scopes"),
        help_text=_("Scopes that the caller's client must hold, separated by spaces."),
    )
    tags = WordsField(
        check=check_tags,
        required=False,
        label=_("Tags"),
        help_text=_("Words for clients that group by tags, separated by spaces."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        server = self.fields.get("server")
        if isinstance(server, forms.ChoiceField):
            server.choices = build_server_choices(self.instance.server)
        if "permission" in self.fields:
            self.fields["permission"].help_text = (self._meta.help_texts or {}).get("permission", "")
        help_text = _("Scopes that the caller's client must hold.")
        replace_by_scope_boxes(self, "scopes", self.instance.scopes, help_text)


class StoredAdmin(BaseAdmin):
    """Admin that saves rows with their versions, and previews them.

    Each change is a version with its author.
    """

    change_form_template = "mcp_django/admin/stored_change_form.html"
    list_filter = ["enabled", ServerFilter]
    actions = ["enable", "disable"]
    help_texts = {
        "server": _("Alias of the only server that has it."),
        "title": _("Name for people."),
        "description": _("Purpose, for people and models."),
        "enabled": _("Disabled entries are hidden from all clients."),
        "permission": _(
            "Django permissions that callers need, such as “shop.view_order”, separated by spaces. "
            "Other callers cannot see the entry. Empty: all users of the server."
        ),
    }

    def get_serving_aliases(self, row: Any) -> list[str]:
        """Return the aliases of the servers that the row is for and that serve stored primitives."""
        servers = get_settings().servers
        return [name for name in wiring.list_aliases() if servers[name].stored and row.server in ("", name)]

    def find_conflict(self, row: Any, alias: str) -> Primitive | None:
        """Return the registered primitive that a server serves instead of the row."""
        raise NotImplementedError

    def build_preview(self, row: Any, alias: str, request: HttpRequest) -> tuple[forms.Form | None, Preview | None]:
        """Return the form for the arguments, and the preview of the result."""
        raise NotImplementedError

    @admin.display(description=_("served by"))
    def state(self, row: Any) -> str:
        """Return the servers that serve the row, or the reason that none does."""
        if not row.enabled:
            return str(_("not enabled"))
        aliases = [alias for alias in self.get_serving_aliases(row) if self.find_conflict(row, alias) is None]
        if not aliases:
            return str(_("served nowhere"))
        return ", ".join(aliases)

    # Saving

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            # Changes by code since the last version would be lost otherwise.
            type(obj).objects.get(pk=obj.pk).record()
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        self.normalize(form.instance)
        form.instance.record(request.user)
        self.show_warnings(request, form.instance)

    def normalize(self, row: Any) -> None:
        """Normalize a saved row before it is recorded as a version."""

    def get_warnings(self, row: Any) -> Iterator[str]:
        unknown = set(row.permission.split()).difference(_get_permission_names())
        if unknown:
            text = _("Unknown permission %s: only superusers can use this.")
            yield text % ", ".join(sorted(unknown))

        for alias in self.get_serving_aliases(row):
            conflict = self.find_conflict(row, alias)
            if conflict is not None:
                text = _("The server “%(server)s” serves %(source)s instead.")
                yield text % {"server": alias, "source": conflict.source}
        for other in type(row)._default_manager.exclude(pk=row.pk).exclude(server=row.server):
            if other.key == row.key and "" in (row.server, other.server):
                text = _("The server “%s” serves its own entry instead of the entry for all servers.")
                yield text % (row.server or other.server)

    @admin.action(description=_("Enable the selected entries"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Enable the selected rows."""
        self._set_enabled(request, queryset, enabled=True)

    @admin.action(description=_("Disable the selected entries"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Disable the selected rows."""
        self._set_enabled(request, queryset, enabled=False)

    def _set_enabled(self, request: HttpRequest, queryset: QuerySet[Any], *, enabled: bool) -> None:
        rows = list(queryset.exclude(enabled=enabled))
        with transaction.atomic(using=router.db_for_write(self.model)):
            for row in rows:
                row.record()
                row.enabled = enabled
                row.save()
                row.record(request.user)
                self.log_change(request, row, [{"changed": {"fields": ["enabled"]}}])
        text = ngettext("%d entry was changed.", "%d entries were changed.", len(rows))
        self.report_count(request, text, len(rows))

    # Pages

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/preview/", wrap(self.preview_view), name=f"{name}_preview"),
            path("<path:object_id>/versions/", wrap(self.versions_view), name=f"{name}_versions"),
            path("<path:object_id>/versions/<int:number>/", wrap(self.version_view), name=f"{name}_version"),
            *super().get_urls(),
        ]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        row = kwargs.get("obj")
        if row is not None:
            context |= {name: self.get_url(name, row.pk) for name in ("preview", "versions")}
        return super().render_change_form(request, context, *args, **kwargs)

    def preview_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show the result that a client gets."""
        row = self._get_viewable(request, object_id)
        aliases = [row.server] if row.server in get_settings().servers else list(wiring.list_aliases())
        requested = request.POST.get("_server")
        alias = str(requested) if requested in aliases else aliases[0]
        form, preview = self.build_preview(row, alias, request)
        extra_context = {"form": form, "preview": preview, "aliases": aliases, "alias": alias}
        return self._render_page(request, "preview", row, _("Preview"), **extra_context)

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """List all versions."""
        row = self._get_viewable(request, object_id)
        versions = row.versions.select_related("user").defer("data")
        listed = [(version, self.get_url("version", row.pk, version.number)) for version in versions]
        return self._render_page(request, "versions", row, _("Versions"), versions=listed)

    def version_view(self, request: HttpRequest, object_id: str, number: int) -> HttpResponseBase:
        """Show one version: its changes, and the changes that restoring it would make."""
        row = self._get_viewable(request, object_id)
        version = row.versions.filter(number=number).first()
        if version is None:
            raise Http404
        if request.method == "POST":
            return self._restore(request, row, version)

        current = row.snapshot()
        previous = row.versions.filter(number__lt=number).order_by("-number").first()
        return self._render_page(
            request,
            "version",
            row,
            str(version),
            version=version,
            before=previous,
            change=compare_snapshots({} if previous is None else previous.data, version.data),
            is_now=current == version.data,
            undone=compare_snapshots(current, version.data),
            may_restore=self.has_change_permission(request, row),
            versions_url=self.get_url("versions", row.pk),
        )

    def _restore(self, request: HttpRequest, row: Any, version: Any) -> HttpResponse:
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        redirect = HttpResponseRedirect(self.get_url("change", row.pk))

        try:
            with transaction.atomic(using=router.db_for_write(self.model)):
                restored = row.restore(version, request.user, str(_("Restored from version %d") % version.number))
                if restored is not None:
                    self.log_change(request, row, str(restored.note))
        except ValidationError as problem:
            text = _("Restoring failed: %s") % " ".join(problem.messages)
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(self.get_url("version", row.pk, version.number))

        if restored is None:
            self.message_user(request, _("Nothing to restore: the current state is the same."), messages.WARNING)
            return redirect
        self.message_user(request, _("Version %d is restored.") % version.number, messages.SUCCESS)
        self.show_warnings(request, row)
        return redirect

    def _get_viewable(self, request: HttpRequest, object_id: str) -> Any:
        """Return the row if the user may view it.

        Raises:
            PermissionDenied: the user may not view the row.
            Http404: the row does not exist.
        """
        row: Stored | None = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        return row

    def _render_page(
        self, request: HttpRequest, name: str, row: Any, title: Any, **extra_context: Any
    ) -> TemplateResponse:
        site = self.admin_site.name
        crumbs: Iterable[tuple[str, Any]] = [
            (reverse(f"{site}:index"), _("Home")),
            (reverse(f"{site}:app_list", args=[self.opts.app_label]), self.opts.app_config.verbose_name),
            (self.get_url("changelist"), capfirst(self.opts.verbose_name_plural)),
            (self.get_url("change", row.pk), row),
            *([(extra_context["versions_url"], _("Versions"))] if "versions_url" in extra_context else []),
        ]
        context = self.build_context(
            request, title=title, subtitle=str(row), original=row, crumbs=crumbs, **extra_context
        )
        return TemplateResponse(request, f"mcp_django/admin/{name}.html", context)
