"""One call and its session: the state that every part of the server shares."""
