"""The project that the servers of these tests serve, and what it tells about itself."""
