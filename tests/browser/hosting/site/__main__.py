"""Serve the demo with the airports of a few countries: `python -m tests.browser.hosting.site PORT`."""

import os
import sys

import django
from django.core.management import call_command

COUNTRIES = ["CH", "FJ"]

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.browser.hosting.site.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("loadairports", country=COUNTRIES, verbosity=0)
    call_command("demo", port=int(sys.argv[1]))
