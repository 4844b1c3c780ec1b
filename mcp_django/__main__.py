"""Command `python -m mcp_django`: `manage.py mcp_stdio` without a manage.py.

stdin and stdout are redirected before settings and apps are imported, so that their output cannot corrupt the messages
to the client.
"""

import os
import sys
from argparse import ArgumentParser

import django
from django.apps import apps
from django.core.management import handle_default_options, load_command_class

from mcp_django.transports.stdio.redirect import redirect_standard_streams

SETTINGS_VARIABLE = "DJANGO_SETTINGS_MODULE"


def main(arguments: list[str]) -> None:
    """Serve over stdio with the options of mcp_stdio.

    The settings module is that of the environment or of `--settings`.
    """
    try:
        redirect_standard_streams()
    except OSError:
        sys.exit("stdin and stdout must be open; start this command from an MCP client")

    # As django-admin does: these two options apply before the settings are loaded.
    parser = ArgumentParser(prog="python -m mcp_django", add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    options, _ = parser.parse_known_args(arguments)
    handle_default_options(options)

    if not os.environ.get(SETTINGS_VARIABLE):
        sys.exit(
            f"{SETTINGS_VARIABLE} is not set; use {SETTINGS_VARIABLE}=project.settings python -m mcp_django, or "
            "--settings"
        )

    django.setup()
    if not apps.is_installed("mcp_django"):
        sys.exit(f'Add "mcp_django" to INSTALLED_APPS of {os.environ[SETTINGS_VARIABLE]}')
    load_command_class("mcp_django", "mcp_stdio").run_from_argv(["python -m", "mcp_django", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
