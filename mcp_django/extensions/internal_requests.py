"""Requests inside the process: a tool that calls a view of the project for its caller.

Such a request has the user of the call, and no credentials of it. MIDDLEWARE does not run again.

    request = build_request(ctx, "GET", "/orders/", "page=2", RequestContent(), accept="application/json")
    try:
        response = view(request)
        ...
    finally:
        close_response(response, request)
"""

from mcp_django.internal_request import (
    PRINCIPAL_META_KEY,
    RequestContent,
    build_request,
    close_response,
    copy_user,
    get_error_response,
)

__all__ = [
    "PRINCIPAL_META_KEY",
    "RequestContent",
    "build_request",
    "close_response",
    "copy_user",
    "get_error_response",
]
