"""The rows of tasks: transitions, leases, and their shapes on the wire."""
