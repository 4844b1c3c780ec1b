"""Django side of the engine: thread pool, event log, sessions, streams, sealed tokens."""
