"""The WSGI application of the site: the view, and the probe."""

from django.core.wsgi import get_wsgi_application

# Django is set up first: the imports below need its apps.
django_application = get_wsgi_application()

from tests.servers.site.probe import ProbedWSGI, end_with_the_tests  # noqa: E402

application = ProbedWSGI(django_application)
end_with_the_tests()
