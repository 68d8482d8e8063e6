"""See, compare, replay and branch what a thread has stored."""
