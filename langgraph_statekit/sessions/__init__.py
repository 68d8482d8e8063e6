"""Sessions: what stands between users and threads."""
