"""Leave these tests out of runs with other settings, where the apps of the packages are not installed."""

from django.conf import settings

collect_ignore_glob = [] if settings.SETTINGS_MODULE.startswith("tests.packages.") else ["test_*.py"]
