"""Management commands of the control room."""
