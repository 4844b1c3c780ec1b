"""Page that compares which callers may use which primitives, and its export."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode

from mcp_django import wiring
from mcp_django.admin.access.form import AccessForm
from mcp_django.admin.access.table import build_table, iter_csv_rows
from mcp_django.admin.base import BaseAdmin, get_admin_url, log_act
from mcp_django.admin.csv_response import build_csv_response
from mcp_django.models import Access

ACCESS_PERMISSION = "mcp_django.view_access"
"""Permission to see the rights of others."""
ACCESS_PAGE = "mcp_django_access_changelist"


@admin.register(Access)
class AccessAdmin(BaseAdmin):
    """Page of access. Its model has no rows of its own."""

    can_add = False
    can_change = False
    can_delete = False

    def get_urls(self) -> list[URLPattern]:
        """Return the URL of the page. Rows have no pages."""
        return [path("", self.admin_site.admin_view(self.access_view), name=ACCESS_PAGE)]

    def access_view(self, request: HttpRequest) -> HttpResponseBase:
        """Show which callers may use which primitives, or export it as CSV."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = AccessForm(request.GET or None)
        table = build_table(form.cleaned_data) if form.is_valid() else None
        if table is not None and request.GET.get("format") == "csv":
            log_act(request, Access, "Access", "Exported as csv.")
            return build_csv_response(iter_csv_rows(table), "access.csv")
        context = self.build_context(
            request,
            title=self.opts.verbose_name,
            home_url=reverse(f"{self.admin_site.name}:index"),
            form=form,
            table=table,
            csv_query=f"{request.GET.urlencode()}&format=csv",
        )
        return TemplateResponse(request, "mcp_django/admin/access.html", context)


def build_access_url(request: HttpRequest, username: str) -> str:
    """Return the URL of the page that shows the access of a user to the first server."""
    query = urlencode({"server": wiring.list_aliases()[0], "users": username})
    return f"{get_admin_url(request, ACCESS_PAGE)}?{query}"
