"""Tools for the control room and its playground."""
