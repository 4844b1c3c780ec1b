"""Views of an exposed class, for calls and for reading schemas."""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from rest_framework.request import Request

from mcp_django.contrib.rest.access.authentication import get_principal_authenticators
from mcp_django.contrib.rest.actions import ExposedView, ViewAction
from mcp_django.contrib.rest.routes import ROUTER_KWARGS, ViewRoute
from mcp_django.extensions.internal_requests import PRINCIPAL_META_KEY
from mcp_django.extensions.schemas import JSONMapping, JSONObject

_ABSENT: Any = object()


def get_initkwargs(action: ViewAction, route: ViewRoute | None) -> JSONObject:
    """Return the keyword arguments of `as_view`: the route's, or a router's."""
    subject = action.subject
    if subject.callback is not None:
        return dict(subject.initkwargs)
    if route is not None:
        return dict(route.initkwargs)
    if not subject.is_viewset:
        return {}
    return {**action.kwargs, "detail": action.is_detail, "basename": (subject.model and subject.model._meta.model_name)}


def get_view_actions(action: ViewAction, route: ViewRoute | None) -> dict[str, str]:
    """Return the mapping of methods to actions for `as_view` of a viewset."""
    return dict(
        action.subject.actions or (route.actions if route is not None else None) or {action.method: action.name}
    )


def build_callback(subject: ExposedView, actions: Mapping[str, str], initkwargs: JSONMapping) -> Callable[..., Any]:
    """Return `as_view()` of the class, authenticating as the call's principal.

    DRF's `as_view` modifies the class (ViewSetMixin.as_view: five names; APIView.as_view: a guard on the queryset).
    These changes are reverted. Routes apply them again when they are created, and calls do not need them.
    """
    cls = subject.cls
    before = {name: vars(cls).get(name, _ABSENT) for name in ROUTER_KWARGS}
    queryset = getattr(cls, "queryset", None)
    is_guarded = "_fetch_all" in getattr(queryset, "__dict__", {})
    arguments = (dict(actions),) if subject.is_viewset else ()

    try:
        callback: Callable[..., Any] = cls.as_view(
            *arguments, **{**initkwargs, "get_authenticators": get_principal_authenticators}
        )
    finally:
        for name, value in before.items():
            if value is _ABSENT:
                if name in vars(cls):
                    delattr(cls, name)
            elif vars(cls).get(name) is not value:
                setattr(cls, name, value)
        if not is_guarded:
            getattr(queryset, "__dict__", {}).pop("_fetch_all", None)
    return callback


def build_fake_request(action: ViewAction, principal: Any = None) -> HttpRequest:
    """Return a request by the principal, or an anonymous one, that has no path."""
    request = HttpRequest()
    request.method = action.method.upper()
    request.META.update({"SERVER_NAME": "localhost", "SERVER_PORT": "80", PRINCIPAL_META_KEY: principal})
    user = None if principal is None else principal.user
    request.user = AnonymousUser() if user is None else user
    return request


def build_fake_view(
    action: ViewAction, actions: Mapping[str, str], initkwargs: JSONMapping, http_request: HttpRequest
) -> tuple[Any, Request]:
    """Return a view in the state of a request of `build_fake_request`.

    Its permissions can be checked then. Without a principal the request is anonymous, to read serializers and filters.
    Then `swagger_fake_view` is set, which views support for generators of OpenAPI documents.
    """
    principal = http_request.META[PRINCIPAL_META_KEY]
    view = action.subject.cls(**initkwargs)
    view.swagger_fake_view = principal is None
    if action.subject.is_viewset:
        view.action_map = dict(actions)
        for method, name in actions.items():
            setattr(view, method, getattr(view, name))

    view.args, view.kwargs, view.format_kwarg, view.request = (), {}, None, http_request
    view.headers = {}
    request = view.initialize_request(http_request)
    if principal is None:
        request.user, request.auth, request._authenticator = AnonymousUser(), None, None
    request.version, request.versioning_scheme = None, None

    renderer = next(iter(view.get_renderers()), None)
    request.accepted_renderer = renderer
    request.accepted_media_type = getattr(renderer, "media_type", None)
    view.request = request
    return view, request
