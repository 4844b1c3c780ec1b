"""The project that the servers of these tests serve, with its probes and events."""
