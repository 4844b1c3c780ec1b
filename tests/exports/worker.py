"""The later run of an export, in any process."""

from typing import Any

from mcp_django.extensions import anotify_extension_key
from mcp_django.extensions.callers import CallerGone
from mcp_django.extensions.calls import get_logger, jsonrpc
from mcp_django.extensions.errors import MCPError, Overloaded
from mcp_django.extensions.stored_calls import StoredCall
from tests.exports.models import Export, ExportStatus

logger = get_logger("exports")
EXPORT_IDS_FIELD = "exportIds"


async def run_export(id: str) -> None:
    """Run the tool of a waiting export and store its end. Nothing happens for another status."""
    export = await Export.objects.filter(pk=id, status=ExportStatus.WAITING).afirst()
    if export is None:
        return
    progress: list[float] = []

    def record_message(message: dict[str, Any]) -> None:
        if message["method"] == "notifications/progress":
            progress.append(message["params"]["progress"])

    try:
        body = await StoredCall.from_json(export.call).run(record_message)
    except Overloaded:
        return  # it waits for the next run
    except (CallerGone, MCPError) as problem:
        end = {"status": ExportStatus.FAILED, "error": str(problem)}
    else:
        end = {"status": ExportStatus.READY, "result": jsonrpc.dumps(body).decode()}
    end["progress"] = progress[-1] if progress else None
    waiting = Export.objects.filter(pk=id, status=ExportStatus.WAITING)
    if await waiting.aupdate(**end):
        await anotify_extension_key(EXPORT_IDS_FIELD, id, server=export.server)
