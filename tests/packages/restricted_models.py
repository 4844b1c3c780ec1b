"""Models whose rows are restricted by packages with permissions or scopes."""

from typing import Any

from django.db import models
from django_scopes import ScopedManager

from tests.orm.object_backends import filter_granted


class RestrictedQuerySet(models.QuerySet[Any, Any]):
    """Queryset with the method of NetBox's querysets (netbox/utilities/querysets.py)."""

    def restrict(self, user: Any, action: str = "view") -> "models.QuerySet[Any, Any]":
        if user.is_superuser:
            return self
        options = self.model._meta
        name = f"{options.app_label}.{action}_{options.model_name}"
        if name not in user.get_all_permissions():
            return self.none()
        return self.filter(pk__in=filter_granted(user, name, self.model._base_manager.all()))


class Site(models.Model):
    """A place, whose rows are restricted as in NetBox."""

    name = models.CharField(max_length=40)
    region = models.CharField(max_length=20)
    partner: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects = RestrictedQuerySet.as_manager()

    class Meta:
        app_label = "packages"


class Ticket(models.Model):
    """A ticket of an organizer, which can be queried inside of the organizer's scope only."""

    # Without a constraint: PostgreSQL makes this table before those of apps with migrations.
    organizer: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        "auth.Group", on_delete=models.CASCADE, db_constraint=False
    )
    name = models.CharField(max_length=40)

    objects = ScopedManager(organizer="organizer")

    class Meta:
        app_label = "packages"
