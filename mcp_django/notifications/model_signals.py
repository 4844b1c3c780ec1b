"""A model's signals, tied to the URIs of the resources that show its rows."""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import ManyToManyField, Model
from django.db.models.signals import class_prepared, m2m_changed, post_delete, post_save
from django.db.models.utils import make_model_tuple
from django.dispatch import Signal

from mcp_django.notifications.publish import notify_list_changed, notify_resource_updated
from mcp_django.protocol.uri import UriTemplate

logger = logging.getLogger("mcp_django.events")

Uris = str | Callable[[Any], str | Iterable[str] | None]
"""A URI template whose variables are names of attributes, or a function of the object."""


def publish_changes(
    model: type[Model], *uris: Uris, server: str | None = None, list_changed: bool = True
) -> Callable[[], None]:
    """Tell clients of every change of a model's rows, by Django's signals:

        publish_changes(Airport, "airport://{code}", "airports://all")

    The variables of a URI template are attributes of the object, with "__" before those of a related one
    (`"country://{country__code}"`); a function is given the object and returns a URI, several, or None. When an object
    is saved, deleted, or its many-to-many relations change, the resources at its URIs are `updated`. When one is
    created or deleted the list of resources changed too, unless `list_changed` is False: right where the rows are
    reached through a template and no list shows them.

    Said on commit, and to the clients of one server if `server` names it. Models that inherit from this one are
    included. What sends no signals is not noticed: `QuerySet.update()`, `bulk_create()`, `bulk_update()`, SQL, and
    what the database deletes by itself; say `notify_resource_updated` there. A URI that changes with the object is told
    of as it is afterwards.

    Returns a function that takes all of it back. Raises ValueError for a template that is none, or names an attribute
    that the model does not have.
    """
    if not uris:
        raise ValueError("publish_changes() needs the URI of a resource that shows the model's rows")
    tie = _Tie(model, [_reader(model, uri) for uri in uris], server, list_changed)
    tie.connect()
    return tie.disconnect


class _Tie:
    """One call of `publish_changes`. Its receivers are its own, so that it must be kept as long as they should hear."""

    def __init__(
        self, model: type[Model], readers: list[Callable[[Any], Iterator[str]]], server: str | None, lists: bool
    ) -> None:
        self._model, self._readers, self._server, self._lists = model, readers, server, lists
        self._connected: list[tuple[Signal, Callable[..., None], Any]] = []

    def connect(self) -> None:
        self._join(class_prepared, self._prepared, None)
        for model in _with_descendants(self._model):
            self._listen(model)

    def disconnect(self) -> None:
        """Hear no more. More than once is once."""
        connected, self._connected = self._connected, []
        for signal, receiver, sender in connected:
            signal.disconnect(receiver, sender=sender)

    def _join(self, signal: Signal, receiver: Callable[..., None], sender: Any) -> None:
        # Strongly: the caller need not keep what publish_changes() returns.
        signal.connect(receiver, sender=sender, weak=False)
        self._connected.append((signal, receiver, sender))

    def _prepared(self, sender: Any, **_: Any) -> None:
        if sender is not self._model and issubclass(sender, self._model):
            self._listen(sender)

    def _listen(self, model: type[Model]) -> None:
        self._join(post_save, self._saved, model)
        self._join(post_delete, self._deleted, model)
        for field in model._meta.local_many_to_many:
            # While the models are being loaded it may be a name yet.
            through: Any = field.remote_field.through
            apps.lazy_model_operation(partial(self._listen_to_relation, field), make_model_tuple(through))

    def _listen_to_relation(self, field: "ManyToManyField[Any, Any]", through: type[Model]) -> None:
        self._join(m2m_changed, partial(self._related, field), through)

    def _saved(self, *, instance: Any, created: bool, using: str, **_: Any) -> None:
        self._tell([instance], using, lists=created)

    def _deleted(self, *, instance: Any, using: str, **_: Any) -> None:
        self._tell([instance], using, lists=True)

    def _related(self, field: "ManyToManyField[Any, Any]", **told: Any) -> None:
        """m2m_changed, from either side of the relation; there is one signal for both."""
        instance, action, using = told["instance"], told["action"], told["using"]
        if not told["reverse"]:
            if action == "post_clear" or (action in ("post_add", "post_remove") and told["pk_set"]):
                self._tell([instance], using, lists=False)
            return
        rows = told["model"]._default_manager.using(using)
        if action in ("post_add", "post_remove") and told["pk_set"]:
            self._tell(rows.filter(pk__in=told["pk_set"]), using, lists=False)
        elif action == "pre_clear":  # afterwards nobody knows which they were
            self._tell(rows.filter(**{field.name: instance}), using, lists=False)

    def _tell(self, objects: Iterable[Any], using: str, *, lists: bool) -> None:
        for instance in objects:
            for reader in self._readers:
                for uri in reader(instance):
                    notify_resource_updated(uri, server=self._server, using=using)
        if lists and self._lists:
            notify_list_changed("resources", server=self._server, using=using)


def _with_descendants(model: type[Model]) -> Iterator[type[Model]]:
    yield model
    for child in model.__subclasses__():
        yield from _with_descendants(child)


def _reader(model: type[Model], uri: Uris) -> Callable[[Any], Iterator[str]]:
    """What reads the URIs of an object. A save never fails for its sake."""
    if callable(uri):
        return partial(_called, uri)
    template = UriTemplate(uri)
    for name in template.variables:
        if not hasattr(model, name.split("__")[0]):
            raise ValueError(f"{model._meta.label} has no attribute {name.split('__')[0]!r} for the URI {uri!r}")
    return partial(_expanded, template)


def _called(function: Callable[[Any], str | Iterable[str] | None], instance: Any) -> Iterator[str]:
    try:
        found = function(instance)
        uris = [found] if isinstance(found, str) else list(found or ())
    except Exception:
        logger.exception("The URIs of %r could not be found out; nobody is told that it changed", instance)
        return
    yield from uris


def _expanded(template: UriTemplate, instance: Any) -> Iterator[str]:
    try:
        yield template.expand({name: _attribute(instance, name) for name in template.variables})
    except (ObjectDoesNotExist, AttributeError):
        return  # something on the way to it is not there, so that it has no such URI
    except ValueError as problem:
        logger.warning("%r has no URI, so nobody is told that it changed: %s", instance, problem)


def _attribute(instance: Any, path: str) -> str:
    value = instance
    for name in path.split("__"):
        value = getattr(value, name)
        if callable(value):
            value = value()
    return "" if value is None else str(value)
