"""Customers are the tenants."""

from django.contrib.auth.models import User
from django.db import models
from django_tenants.models import DomainMixin, TenantMixin


class Customer(TenantMixin):
    """A tenant with its members."""

    members = models.ManyToManyField(User)


class Domain(DomainMixin):
    """An address of a tenant."""
