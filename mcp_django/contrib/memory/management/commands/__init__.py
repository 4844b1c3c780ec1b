"""Management commands of the memory."""
