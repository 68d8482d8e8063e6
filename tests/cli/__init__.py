"""The command line, called as `main` or as a process."""
