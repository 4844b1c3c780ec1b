"""Lists of a remote server: fetched, cached, and served as local components."""
