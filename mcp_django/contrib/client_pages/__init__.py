"""Pages where users authorize this project for other servers, and revoke it."""
