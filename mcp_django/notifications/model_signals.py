"""Publish changes of a model's rows as updates of the resources that show them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import ManyToManyField, Model
from django.db.models.signals import class_prepared, m2m_changed, post_delete, post_save
from django.db.models.utils import make_model_tuple
from django.dispatch import Signal

from mcp_django.notifications.publish import log_failure, notify_list_changed, notify_resource_updated
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.uri import UriTemplate

logger = get_logger("mcp_django.events")

UriSource = str | Callable[[Any], str | Iterable[str] | None]
"""URI template whose variables are attribute names, or a function of the object."""


def publish_changes(
    model: type[Model], *uris: UriSource, server: str | None = None, list_changed: bool = True
) -> Callable[[], None]:
    """Notify clients of all changes of a model's rows, by Django's signals.

        publish_changes(Airport, "airport://{code}", "airports://all")

    The variables of a URI template are attributes of the object, with "__" between a relation and its attribute
    (`"country://{country__code}"`). A function receives the object and returns one URI, several URIs, or None.

    Saving or deleting an object, or changing its many-to-many relations, sends `updated` for the resources at its URIs.
    Creating or deleting one also sends `list_changed` for resources. Pass `list_changed=False` if the rows are reached
    through a template and no list shows them.

    Notifications are sent on commit, to the clients of one server if `server` names it. Models that inherit from this
    one are included. Operations without signals are not detected: `QuerySet.update()`, `bulk_create()`,
    `bulk_update()`, SQL, and deletions by the database. Call `notify_resource_updated` for these. If a change alters
    the URI, the new URI is notified.

    Returns:
        A function that stops the notifications.

    Raises:
        ValueError: an invalid template, or an attribute that the model does not have.
    """
    if not uris:
        raise ValueError("publish_changes() requires at least one URI of a resource that shows the model's rows")
    publisher = _ModelChangePublisher(model, [_build_uri_reader(model, uri) for uri in uris], server, list_changed)
    publisher.connect()
    return publisher.disconnect


class _ModelChangePublisher:
    """Signal connections of one call of `publish_changes`.

    The receivers are bound methods. The object must exist as long as they are connected.
    """

    def __init__(
        self, model: type[Model], readers: list[Callable[[Any], Iterator[str]]], server: str | None, list_changed: bool
    ) -> None:
        self._model = model
        self._readers = readers
        self._server = server
        self._list_changed = list_changed
        self._connections: list[tuple[Signal, Callable[..., None], Any]] = []

    def connect(self) -> None:
        self._connect_receiver(class_prepared, self._on_class_prepared, None)
        for model in _iter_subclasses(self._model):
            self._connect_model(model)

    def disconnect(self) -> None:
        """Disconnect all receivers. Repeated calls have no effect."""
        connected = self._connections
        self._connections = []
        for signal, receiver, sender in connected:
            signal.disconnect(receiver, sender=sender)

    def _connect_receiver(self, signal: Signal, receiver: Callable[..., None], sender: Any) -> None:
        # Strong references: the caller need not keep the return value of publish_changes().
        signal.connect(receiver, sender=sender, weak=False)
        self._connections.append((signal, receiver, sender))

    def _on_class_prepared(self, sender: Any, **_: Any) -> None:
        if sender is not self._model and issubclass(sender, self._model):
            self._connect_model(sender)

    def _connect_model(self, model: type[Model]) -> None:
        if model._meta.abstract or model._meta.swapped:
            return  # it has no rows, and its many-to-many fields have no table
        self._connect_receiver(post_save, self._on_saved, model)
        self._connect_receiver(post_delete, self._on_deleted, model)
        for field in model._meta.local_many_to_many:
            # Until all models are loaded, this may be the name of a model.
            through: Any = field.remote_field.through
            apps.lazy_model_operation(partial(self._connect_relation, field), make_model_tuple(through))

    def _connect_relation(self, field: "ManyToManyField[Any, Any]", through: type[Model]) -> None:
        self._connect_receiver(m2m_changed, partial(self._on_relation_changed, field), through)

    def _on_saved(self, *, instance: Any, created: bool, using: str, **_: Any) -> None:
        self._notify([instance], using, list_changed=created)

    def _on_deleted(self, *, instance: Any, using: str, **_: Any) -> None:
        self._notify([instance], using, list_changed=True)

    def _on_relation_changed(self, field: "ManyToManyField[Any, Any]", **change: Any) -> None:
        """Handle m2m_changed from either side of the relation."""
        instance, action, using = change["instance"], change["action"], change["using"]
        if not change["reverse"]:
            if action == "post_clear" or (action in ("post_add", "post_remove") and change["pk_set"]):
                self._notify([instance], using, list_changed=False)
            return
        rows = change["model"]._default_manager.using(using)
        if action in ("post_add", "post_remove") and change["pk_set"]:
            self._notify(rows.filter(pk__in=change["pk_set"]), using, list_changed=False)
        elif action == "pre_clear":  # the relations do not exist after the clear
            self._notify(rows.filter(**{field.name: instance}), using, list_changed=False)

    def _notify(self, objects: Iterable[Any], using: str, *, list_changed: bool) -> None:
        for instance in objects:
            for reader in self._readers:
                for uri in reader(instance):
                    with log_failure("rows"):
                        notify_resource_updated(uri, server=self._server, using=using)
        if list_changed and self._list_changed:
            with log_failure("rows"):
                notify_list_changed("resources", server=self._server, using=using)


def _iter_subclasses(model: type[Model]) -> Iterator[type[Model]]:
    yield model
    for child in model.__subclasses__():
        yield from _iter_subclasses(child)


def _build_uri_reader(model: type[Model], uri: UriSource) -> Callable[[Any], Iterator[str]]:
    """Return a function that yields the URIs of an object.

    Errors in it are logged and never make a save fail.
    """
    if callable(uri):
        return partial(_read_function_uris, uri)
    template = UriTemplate(uri)
    for name in template.variables:
        if not hasattr(model, name.split("__")[0]):
            raise ValueError(f"{model._meta.label} has no attribute {name.split('__')[0]!r} for the URI {uri!r}")
    return partial(_expand_template, template)


def _read_function_uris(function: Callable[[Any], str | Iterable[str] | None], instance: Any) -> Iterator[str]:
    try:
        result = function(instance)
        uris = [result] if isinstance(result, str) else list(result or ())
    except Exception:
        logger.exception("Change not published: the function for the URIs of %r failed", instance)
        return
    yield from uris


def _expand_template(template: UriTemplate, instance: Any) -> Iterator[str]:
    try:
        yield template.expand({name: _get_attribute_text(instance, name) for name in template.variables})
    except (ObjectDoesNotExist, AttributeError):
        return  # a related object is missing, so the object has no such URI
    except ValueError as problem:
        logger.warning("Change not published: %r has no URI: %s", instance, problem)


def _get_attribute_text(instance: Any, path: str) -> str:
    value = instance
    for name in path.split("__"):
        value = getattr(value, name)
        if callable(value):
            value = value()
    return "" if value is None else str(value)
