"""Static files inside pages: an app has no origin from which it could load them.

The files come from the manifest of the storage if it has one, else from the finders.
"""

import base64
import mimetypes
import re
from pathlib import Path
from typing import Any

from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import ManifestFilesMixin, staticfiles_storage

_SCRIPT_END = re.compile(r"<(?=/script|!--)", re.IGNORECASE)
_STYLE_END = re.compile(r"<(?=/style|!--)", re.IGNORECASE)


class StaticFileMissing(LookupError):
    """Static file that neither the finders nor the storage has."""


def read_static(path: str) -> bytes:
    """Return the content of a static file, as `collectstatic` has processed it. Raises StaticFileMissing."""
    name = path.lstrip("/")
    storage: Any = staticfiles_storage
    if issubclass(type(storage), ManifestFilesMixin):
        stored = storage.hashed_files.get(storage.hash_key(name))
        if stored is not None and storage.exists(stored):
            with storage.open(stored) as file:
                return bytes(file.read())
    found = finders.find(name)
    if not isinstance(found, str):
        raise StaticFileMissing(f"the static file {path!r} was not found; `manage.py findstatic` lists the folders")
    return Path(found).read_bytes()


def read_script(path: str) -> str:
    """Return a script for use inside `<script>`. Raises StaticFileMissing."""
    return escape_script(read_static(path).decode())


def escape_script(text: str) -> str:
    """Return the text of a script without sequences that end `<script>` or start a comment of HTML.

    They appear in strings, regular expressions and comments only, where the escape has no effect.
    """
    return _SCRIPT_END.sub(r"\\x3c", text)


def read_style(path: str) -> str:
    """Return a stylesheet for use inside `<style>`. Raises StaticFileMissing."""
    return _STYLE_END.sub(r"\\3c ", read_static(path).decode())


def read_data_url(path: str) -> str:
    """Return a file as a data: URL. Raises StaticFileMissing."""
    mime_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return f"data:{mime_type};base64,{base64.b64encode(read_static(path)).decode('ascii')}"
