"""Django side of the engine: threads, event log, sessions, streams, sealed tokens."""
