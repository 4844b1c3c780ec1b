"""Names of models and columns: their ASCII form, and names of secrets."""

import re
import unicodedata

from django.db import models
from django.db.models.constants import LOOKUP_SEP

_SECRET_NAME = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secrets?|tokens?|hash|hashed|digest|salt|otp|totp|mfa|2fa|credentials?|"
    r"cvv|cvc|api_?keys?|private_?keys?|secret_?keys?|access_?keys?|signing_?keys?|encryption_?keys?|session_?keys?|"
    r"(recovery|backup|reset|verification)_codes?)(_|$)"
)
_HARMLESS_COLUMNS = (models.BooleanField, models.DateField, models.TimeField, models.DurationField)
"""Columns whose values are too few or too regular to be secrets.

Examples are `has_password` and `token_expires`.
"""


def is_secret_name(name: str) -> bool:
    """Return True if a name probably denotes a secret.

    Each segment of a path is checked.
    """
    return any(_SECRET_NAME.search(_to_snake_case(segment)) for segment in name.split(LOOKUP_SEP))


def is_secret_column(name: str, column: object) -> bool:
    """Return True if a path to a column probably leads to a secret.

    `column` is the Django field at its end, or None for a computed value. A boolean, a date, a time or a duration is no
    secret, unless the path crosses a relation with such a name.
    """
    relations, _, _ = name.rpartition(LOOKUP_SEP)
    return is_secret_name(relations if isinstance(column, _HARMLESS_COLUMNS) else name)


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def to_ascii_name(name: str) -> str:
    """Return a name in ASCII, for identifiers that allow no other characters.

    Letters lose their accents. A name with other letters is encoded as in host names (Punycode, RFC 3492).
    """
    if name.isascii():
        return name
    letters = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return plain if plain.isascii() else f"xn--{name.encode('punycode').decode()}"
