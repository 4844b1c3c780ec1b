"""Rooms whose changes are logged by several packages at once, as tools of a model and of a view."""

import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import crum
import reversion
from auditlog.registry import auditlog
from django.db import models
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest
from django_scopes import ScopedManager, scope
from rest_framework import serializers, viewsets
from reversion.middleware import RevisionMiddleware
from simple_history.models import HistoricalRecords

from mcp_django import ModelToolset
from mcp_django import register as register_toolset
from mcp_django.contrib.rest import expose

SERVER = "rooms"


class Room(models.Model):
    name = models.CharField(max_length=20)
    changed_by = models.CharField(max_length=20, blank=True, editable=False)
    history = HistoricalRecords(user_db_constraint=False)  # the table is made before those of migrations

    class Meta:
        app_label = "packages"

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        user = crum.get_current_user()
        self.changed_by = "" if user is None else user.username
        super().save(*args, **kwargs)


auditlog.register(Room)
reversion.register(Room)


class Guest(models.Model):
    name = models.CharField(max_length=20)
    hotel = models.CharField(max_length=20)
    objects = ScopedManager(hotel="hotel")

    class Meta:
        app_label = "packages"

    def __str__(self) -> str:
        return self.name


class RoomSerializer(serializers.ModelSerializer[Room]):
    class Meta:
        model = Room
        fields = ("id", "name")


class RoomViewSet(viewsets.ModelViewSet[Room]):
    queryset = Room.objects.order_by("pk")
    serializer_class = RoomSerializer
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []


CURRENT_REQUEST: ContextVar[Any] = ContextVar("current_request", default=None)
EVENTS: ContextVar[dict[Any, Any]] = ContextVar("events")
CHANGES: list[str] = []
"""Users of changes, as a change log in signals writes them."""
SENT_EVENTS: list[str] = []


@register_toolset(Room, server=SERVER)
class Rooms(ModelToolset):
    fields = ["name"]
    tools = ["list", "create", "update"]


@register_toolset(Guest, server=SERVER)
class Guests(ModelToolset):
    fields = ["name"]
    tools = ["list"]


expose(RoomViewSet, server=SERVER, actions="__all__", prefix="api_")


@receiver(post_save, sender=Room)
def log_change(instance: Room, **kwargs: Any) -> None:
    """Log a change and queue an event, if there is a request."""
    request = CURRENT_REQUEST.get()
    if request is not None:
        CHANGES.append(request.user.username)
        EVENTS.get()[instance.pk].append(f"{instance} by {request.user} in {request.id}")


@contextmanager
def event_tracking(request: Any) -> Iterator[None]:
    """Keep the request, and send events at a successful end.

    NetBox does so (netbox-community/netbox, netbox/netbox/context_managers.py).
    """
    request_token, events_token = CURRENT_REQUEST.set(request), EVENTS.set(defaultdict(list))
    try:
        yield
        SENT_EVENTS.extend(event for events in EVENTS.get().values() for event in events)
    finally:
        CURRENT_REQUEST.reset(request_token)
        EVENTS.reset(events_token)


@contextmanager
def track_events(ctx: Any) -> Iterator[None]:
    """Name the caller in the change log."""
    request = ctx.request or HttpRequest()
    request.id, request.user = uuid.uuid4(), ctx.user
    with event_tracking(request):
        yield


class EventMiddleware:
    """MIDDLEWARE that tracks the events of a request."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.id = uuid.uuid4()
        with event_tracking(request):
            return self.get_response(request)


def in_hotel(ctx: Any) -> Any:
    """Limit the rows to a hotel."""
    return scope(hotel=ctx.headers["x-hotel"])


class Revisions(RevisionMiddleware):
    """MIDDLEWARE without its transaction, which would be on another connection than that of handlers."""

    atomic = False


class HotelMiddleware:
    """MIDDLEWARE that limits the rows to a hotel."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        with scope(hotel=request.headers["X-Hotel"]):
            return self.get_response(request)
