"""Pages of the control room in the admin."""
