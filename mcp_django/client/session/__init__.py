"""One connection to a server: negotiation, requests, callbacks and subscriptions."""
