"""The Celery app as Celery's worker finds it."""

import django

from tests.load.task_site.broker import app

__all__ = ["app"]
django.setup()
