"""Test support that several folders share. What one folder alone uses lies in that folder."""
