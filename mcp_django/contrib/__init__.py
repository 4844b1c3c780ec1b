"""Optional products on top of the core. A project installs those that it uses."""
