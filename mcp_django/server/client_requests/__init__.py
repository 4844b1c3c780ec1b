"""Requests to the client: elicitation, sampling and roots, live or by replay."""
