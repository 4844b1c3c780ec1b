"""The demo, with apps that are good, careless and hostile."""
