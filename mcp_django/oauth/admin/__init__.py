"""The authorization server in Django's admin."""

from django.contrib import admin

from .client_profile import ClientProfileAdmin
from .consent import ConsentAdmin
from .issued import lock

__all__ = ["ClientProfileAdmin", "ConsentAdmin"]

lock(admin.site)
