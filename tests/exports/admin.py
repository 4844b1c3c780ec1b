"""Page of exports for operators, who may cancel one."""

from typing import Any

from django.contrib import admin

from mcp_django.extensions.admin_pages import RowAction, RowActionAdmin, ServerFilter
from tests.exports.models import Export, ExportStatus


@admin.register(Export)
class ExportAdmin(RowActionAdmin):
    """Admin of exports. Their calls and results stay hidden."""

    can_add = False
    can_change = False
    fields = ["id", "user", "server", "tool", "status", "progress", "error", "created"]
    list_display = ["id", "tool", "server", "status", "created"]
    list_filter = ["status", ServerFilter]

    def get_row_actions(self) -> list[RowAction]:
        return [RowAction("cancel", "Cancel", "Cancel this export?", _is_waiting, _cancel)]


def _is_waiting(export: Export) -> bool:
    return export.status == ExportStatus.WAITING


def _cancel(export: Export, operator: Any) -> str:
    export.status = ExportStatus.CANCELLED
    export.save(update_fields=["status"])
    return "The export is cancelled."
