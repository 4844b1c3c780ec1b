"""The Celery app of the project. Its broker is a Redis of the test."""

import os

import django
from celery import Celery

django.setup()
app = Celery("task_site", broker=os.environ["SITE_BROKER"])
app.conf.imports = ["mcp_django.contrib.tasks.backends.celery"]
app.conf.broker_connection_retry_on_startup = True
