"""The Celery app of the project. Its broker is a Redis of the test.

Settings import it, as the package of a project's settings does: processes that send messages need the app as well.
"""

import os

from celery import Celery

app = Celery("task_site", broker=os.environ["SITE_BROKER"])
app.conf.imports = ["mcp_django.contrib.tasks.backends.celery"]
app.conf.broker_connection_retry_on_startup = True
