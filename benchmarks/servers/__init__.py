"""One small server per peer, all with the same tools: `add`, `echo`, `countdown`, `lookup`, `greet`, and fillers.

Each runs as `python <file>` on uvicorn with one worker; the environment says PORT, NTOOLS and, for the peers, JSON.
"""
