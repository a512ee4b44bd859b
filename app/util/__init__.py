"""Helpers without a domain word: clock, ids, environment, files of projects and of the data directory, processes, tasks, threads,
secrets, bounds of what others send."""
