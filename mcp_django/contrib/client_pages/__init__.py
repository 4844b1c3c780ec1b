"""Pages where people allow this project to use other servers for them, see what they allowed, and end it."""
