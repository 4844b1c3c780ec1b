"""Small servers of the peers, all with the same tools.

The tools are `add`, `echo`, `countdown`, `lookup`, `greet`, and fillers. Each server runs as `python <file>` on uvicorn
with one worker. The environment sets PORT, NTOOLS and, for the peers, JSON.
"""
