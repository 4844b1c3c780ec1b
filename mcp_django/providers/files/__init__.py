"""Files as resources: directories, storages, and parts for other providers."""

from mcp_django.providers.files.files import DirectoryProvider, FileResource
from mcp_django.providers.files.patterns import ContentTooLarge, FileEntry, FileSelection, is_safe_name
from mcp_django.providers.files.sandbox import DirectorySandbox, read_limited
from mcp_django.providers.files.storages import StorageFiles, StorageProvider
from mcp_django.providers.files.tree import FileSource
from mcp_django.providers.media_types import BINARY, TEXT, guess_media_type, is_binary_type

__all__ = [
    "BINARY",
    "TEXT",
    "ContentTooLarge",
    "DirectoryProvider",
    "DirectorySandbox",
    "FileEntry",
    "FileResource",
    "FileSelection",
    "FileSource",
    "StorageFiles",
    "StorageProvider",
    "guess_media_type",
    "is_binary_type",
    "is_safe_name",
    "read_limited",
]
