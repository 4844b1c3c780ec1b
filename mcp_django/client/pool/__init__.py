"""Pool of the clients of a process: one for each alias, user and event loop."""
