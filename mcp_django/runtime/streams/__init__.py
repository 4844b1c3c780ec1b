"""Streams of calls and sessions: replay buffers, relays between workers, ids."""
