"""The ASGI application of the site: both doors, or with SITE_DOORS=view only the view, and the probe."""

import os

from django.core.asgi import get_asgi_application

# Django is set up first: the imports below need its apps.
django_application = get_asgi_application()

from mcp_django.asgi import mount  # noqa: E402
from tests.servers.site.probe import Probed, end_with_the_tests  # noqa: E402

application = Probed(django_application if os.environ.get("SITE_DOORS") == "view" else mount(django_application))
end_with_the_tests()
