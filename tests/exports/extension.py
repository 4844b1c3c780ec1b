"""The extension: calls of tools with the tag `export` answer with an export, whose result comes later."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp_django import Context
from mcp_django.extensions import (
    Call,
    Extension,
    ExtensionResult,
    InvalidParams,
    ProceedWithCall,
    Tool,
    create_cursor,
    get_call,
    method,
    read_cursor,
    subscription,
)
from mcp_django.extensions.callers import get_owner, get_user_pk
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.event_loop import monotonic, run_in_background, wait_for_event
from mcp_django.extensions.stored_calls import StoredCall
from tests.exports.models import Export, ExportStatus
from tests.exports.worker import EXPORT_IDS_FIELD, run_export

IDENTIFIER = "com.example/exports"
PAGE_ROWS = 2
MAX_WAIT_SECONDS = 5.0
CHECK_SECONDS = 0.05


class Exports(Extension):
    """Exports of one caller: it alone sees, awaits and cancels them."""

    identifier = IDENTIFIER
    result_types = frozenset({"export"})

    def intercepts(self, tool: Tool) -> bool:
        return "export" in tool.tags

    async def call_tool(
        self, call: Call, tool: Tool, arguments: dict[str, Any], proceed: ProceedWithCall
    ) -> Mapping[str, Any]:
        if not self.is_declared(call):
            return await proceed(call)
        export = await Export.objects.acreate(
            owner=get_owner(call).digest,
            user_id=get_user_pk(call.principal),
            server=call.server.alias,
            tool=tool.name,
            call=StoredCall.from_call(call, tool, arguments).to_json(),
        )
        run_in_background(run_export(export.pk))
        return ExtensionResult("export", **_describe(export))

    @method("exports/get", name_param="exportId", atomic=False)
    async def get_export(self, ctx: Context, export_id: str) -> dict[str, Any]:
        """Return an export of the caller."""
        return _describe(await _find(get_call(ctx), export_id))

    @method("exports/result", name_param="exportId", atomic=False)
    async def get_result(self, ctx: Context, export_id: str) -> dict[str, Any]:
        """Wait for the result of an export for some seconds, and return the export."""
        call = get_call(ctx)
        with call.claim_wait() as may_wait:
            end = monotonic() + (MAX_WAIT_SECONDS if may_wait else 0)
            while (export := await _find(call, export_id)).status == ExportStatus.WAITING and monotonic() < end:
                await wait_for_event(asyncio.Event(), CHECK_SECONDS)
        return _describe(export)

    @method("exports/cancel", name_param="exportId", atomic=False)
    async def cancel_export(self, ctx: Context, export_id: str) -> dict[str, Any]:
        """Cancel a waiting export."""
        export = await _find(get_call(ctx), export_id)
        waiting = Export.objects.filter(pk=export.pk, status=ExportStatus.WAITING)
        if not await waiting.aupdate(status=ExportStatus.CANCELLED):
            raise InvalidParams("The export has ended already")
        return {}

    @method("exports/list", atomic=False)
    async def list_exports(self, ctx: Context) -> dict[str, Any]:
        """Return a page of the exports of the caller."""
        call = get_call(ctx)
        owner = get_owner(call)
        if not owner.is_distinct:
            return {"exports": []}
        last = read_cursor(call, "exports", owner.digest)
        rows = Export.objects.filter(owner=owner.digest, pk__gt=last or "").order_by("pk")[: PAGE_ROWS + 1]
        exports = [export async for export in rows]
        body: dict[str, Any] = {"exports": [_describe(export) for export in exports[:PAGE_ROWS]]}
        if len(exports) > PAGE_ROWS:
            body["nextCursor"] = create_cursor(call, "exports", owner.digest, exports[PAGE_ROWS - 1].pk)
        return body

    @subscription(EXPORT_IDS_FIELD, notification="notifications/exports", atomic=False)
    async def read_export(self, ctx: Context, key: str) -> dict[str, Any] | None:
        """Return an export of the caller, or None."""
        export = await Export.objects.filter(pk=key, owner=get_owner(get_call(ctx)).digest).afirst()
        return None if export is None else _describe(export)


async def _find(call: Call, id: str) -> Export:
    export = await Export.objects.filter(pk=id, owner=get_owner(call).digest).afirst()
    if export is None:
        raise InvalidParams("Unknown export")
    return export


def _describe(export: Export) -> dict[str, Any]:
    body: dict[str, Any] = {"exportId": export.pk, "status": str(export.status)}
    if export.progress is not None:
        body["progress"] = export.progress
    if export.result:
        body["result"] = jsonrpc.loads(export.result.encode())
    if export.error:
        body["error"] = export.error
    return body
