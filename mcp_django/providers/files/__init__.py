"""Files as resources: directories and Django storages."""
