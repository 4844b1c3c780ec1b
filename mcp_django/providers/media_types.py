"""Media types: guessed by file name; text or binary decided by content."""

import mimetypes
import re
from email.message import Message

from mcp_django.protocol.content import BlobResourceContents, TextResourceContents

BINARY, TEXT = "application/octet-stream", "text/plain"
# Without the tables of the machine (/etc/mime.types), which vary.
_TYPES = mimetypes.MimeTypes()
for _name, _type in {
    ".geojson": "application/geo+json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".rst": "text/x-rst",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}.items():
    _TYPES.add_type(_type, _name)
_COMPRESSED_TYPES = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_ALWAYS_BINARY = ("image/", "audio/", "video/", "font/")
# Encodings of web pages. Remote servers must not choose other Python codecs: some take quadratic time.
_ALLOWED_CHARSETS = re.compile(
    r"utf-?8|utf-?(16|32)([bl]e|-[bl]e)?|(us-)?ascii|iso-?8859-\d\d?|latin-?1|(windows-|cp)125\d|koi8-[ru]|shift_jis"
    r"|euc-(jp|kr)|gbk|gb2312|gb18030|big5",
    re.IGNORECASE | re.ASCII,
)
_BINARY = frozenset({BINARY, "application/pdf", "application/zip", *_COMPRESSED_TYPES.values()})


def guess_media_type(name: str) -> str | None:
    """Return the media type of a file name, or None if it is unknown."""
    # Avoid the scheme detection of guess_type(), because a name is not a URL.
    media_type, compression = _TYPES.guess_type("./" + name.rpartition("/")[2])
    return _COMPRESSED_TYPES.get(compression, BINARY) if compression else media_type


def build_contents(
    data: bytes, mime_type: str | None = None, charset: str | None = None
) -> TextResourceContents | BlobResourceContents:
    """Build contents of a resource: text if the bytes decode, else a blob.

    The default charset is UTF-8.
    """
    text = None if is_binary_type(mime_type) else _decode_text(data, charset or "utf-8")
    if text is None:
        return BlobResourceContents(data, mime_type=mime_type or BINARY)
    return TextResourceContents(text, mime_type=mime_type or TEXT)


def parse_content_type(value: str | None) -> tuple[str | None, str | None]:
    """Parse a Content-Type header into media type and charset."""
    if not value:
        return None, None
    message = Message()
    message["content-type"] = value
    media_type = message.get_content_type() if "/" in value else None
    charset = message.get_param("charset")
    return media_type, charset if isinstance(charset, str) else None


def is_binary_type(mime_type: str | None) -> bool:
    """Return True for a media type whose content is never text."""
    if mime_type is None or mime_type == "image/svg+xml":
        return False
    return mime_type.startswith(_ALWAYS_BINARY) or mime_type in _BINARY


def _decode_text(data: bytes, charset: str) -> str | None:
    if not _ALLOWED_CHARSETS.fullmatch(charset) or charset.lower() in ("utf-8", "utf8"):
        charset = "utf-8-sig"
    try:
        text = data.decode(charset)
    except (UnicodeError, LookupError):
        return None
    return None if "\0" in text else text
