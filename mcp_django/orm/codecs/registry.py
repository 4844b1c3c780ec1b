"""Registry of codecs by field class, and the codec of a column.

The package's own codecs are registered here like those of projects. A field uses the codec of the first class in the
method resolution order of its own class that has one.
"""

from collections.abc import Callable
from dataclasses import replace as replace_fields
from typing import Any, cast

from django.core.exceptions import FieldError
from django.db import models

from mcp_django.orm.codecs.codec import Codec, ModelField
from mcp_django.orm.codecs.conversion import FieldClass, adapt_codec
from mcp_django.schema import DeclarationError

CodecBuilder = Callable[[Any], Codec]
"""Function from a field to its codec."""
_BUILDERS: dict[str, CodecBuilder] = {}
"""Registered builders, by the dotted path of the field class."""


def register_codec(*field_classes: FieldClass | str, replace: bool = False) -> Callable[[CodecBuilder], CodecBuilder]:
    """Register the decorated function as the builder of the codecs of field classes.

    The function receives the field and returns its `Codec`. Subclasses of a class use the same codec. A class is given
    itself, or by its dotted path if its package may be missing. `replace` replaces the registered builder of a class.

    Raises:
        DeclarationError: a class is no field class, or has a builder already.
    """
    paths = [_get_path(field_class) for field_class in field_classes]

    def register(build: CodecBuilder) -> CodecBuilder:
        for path in paths:
            known = _BUILDERS.get(path)
            if known is not None and not replace:
                raise DeclarationError(
                    f"register_codec: {path} has a codec already, built by {known.__module__}.{known.__qualname__}; "
                    "pass replace=True to replace it"
                )
            _BUILDERS[path] = build
        return build

    return register


def get_codec(field: ModelField, field_class: FieldClass | None = None) -> Codec:
    """Return the codec of a concrete field; foreign keys use their target field.

    With `field_class`, return the codec that the field would have as an instance of this class. The lookups are those
    that Django has for the column.
    """
    column = field
    while isinstance(field, models.ForeignObject):
        field = field.target_field
    if isinstance(field, models.GeneratedField):
        return get_codec(cast(ModelField, field.output_field), field_class)

    build, registered_class = _find_builder(field_class or type(field))
    codec = build(field)
    if not isinstance(codec, Codec):
        raise DeclarationError(f"{build.__module__}.{build.__qualname__} returned {codec!r}; return a Codec")
    codec = adapt_codec(codec, field, registered_class)
    lookups = {name: operand for name, operand in codec.lookups.items() if _has_lookup(column, name)}
    return codec if lookups == codec.lookups else replace_fields(codec, lookups=lookups)


def _find_builder(field_class: FieldClass) -> tuple[CodecBuilder, FieldClass]:
    """Return the builder for a field class, and the class that it is registered for."""
    for base in field_class.__mro__:
        build = _BUILDERS.get(_format_path(base))
        if build is not None:
            return build, base
    raise LookupError(f"no codec for {field_class.__qualname__}; it extends no field class of Django")


def _has_lookup(column: Any, name: str) -> bool:
    """Return True if Django has a lookup or a transform of this name for the column.

    Field classes may refuse lookups that they inherit by an exception, as Django refuses them in a query.
    """
    try:
        return column.get_lookup(name) is not None or column.get_transform(name) is not None
    except (FieldError, NotImplementedError, TypeError, ValueError):
        return False


def _get_path(field_class: FieldClass | str) -> str:
    if isinstance(field_class, str):
        return field_class
    given: Any = field_class
    if not isinstance(given, type) or not issubclass(given, models.Field):
        raise DeclarationError(f"register_codec: {field_class!r} has no codec; give a subclass of models.Field")
    return _format_path(field_class)


def _format_path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
