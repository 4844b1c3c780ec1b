"""The lists of a remote server: fetched, cached, and served as components of this one."""
