"""Real servers in processes of their own, a small project behind both doors, and clients that leave at any moment."""
