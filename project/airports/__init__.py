"""The demo app: airports, countries, regions and trips. Start reading at `mcp_tools.py`."""
