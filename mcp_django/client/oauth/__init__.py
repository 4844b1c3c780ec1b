"""OAuth of the client: discovery, the authorization flow, and stored tokens."""
