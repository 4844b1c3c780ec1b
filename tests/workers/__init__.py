"""Several workers behind one address: no message depends on the worker that sends or receives it."""
