"""Questions in apps: elicitation for clients that show apps, but cannot ask their user."""
