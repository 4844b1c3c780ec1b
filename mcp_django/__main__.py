"""`python -m mcp_django`: `manage.py mcp_stdio` for a project without its manage.py.

stdin and stdout are taken before settings and apps are imported, so that whatever those print is no message to the
client.
"""

import os
import sys
from argparse import ArgumentParser

import django
from django.apps import apps
from django.core.management import handle_default_options, load_command_class

from mcp_django.transports.stdio.redirect import take

SETTINGS = "DJANGO_SETTINGS_MODULE"


def main(arguments: list[str]) -> None:
    """Serve, with the options of mcp_stdio, under the settings that the environment or `--settings` names."""
    try:
        take()
    except OSError:
        sys.exit("stdin and stdout must be open; MCP clients open them")
    # As django-admin does: these two count before there are settings.
    parser = ArgumentParser(prog="python -m mcp_django", add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    options, _ = parser.parse_known_args(arguments)
    handle_default_options(options)
    if not os.environ.get(SETTINGS):
        sys.exit(f"Name the project's settings: {SETTINGS}=project.settings python -m mcp_django, or --settings")
    django.setup()
    if not apps.is_installed("mcp_django"):
        sys.exit(f'Add "mcp_django" to INSTALLED_APPS of {os.environ[SETTINGS]}')
    load_command_class("mcp_django", "mcp_stdio").run_from_argv(["python -m", "mcp_django", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
