"""stdio: one JSON-RPC message on each line of standard input and output."""
