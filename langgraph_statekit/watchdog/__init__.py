"""The watchdog: what is wrong with a run, what to do about it, and doing it."""
