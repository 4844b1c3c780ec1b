"""What the channels of a server have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from ...auth.authenticate import Authenticator
from ...runtime.lifecycle import Lifecycle
from ...runtime.own_streams import OwnStream
from ...runtime.subscriptions import Listens
from ...server.pipeline import Pipeline
from ...server.session import Session
from ..guards import Guard
from ..open_streams import Listeners
from .own_session import Keep
from .terms import DuplexLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all channels of one server have in common."""

    pipeline: Pipeline
    own: Callable[[Session], OwnStream]
    """Makes a session's own stream."""
    keep: Keep
    listens: Listens
    """Counts the channels."""
    lifecycle: Lifecycle
    limits: DuplexLimits
    open_ones: Listeners
    guard: Guard
    authenticator: Authenticator
