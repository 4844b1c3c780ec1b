"""A random run of tasks under faults, and the judge of its journal and rows."""
