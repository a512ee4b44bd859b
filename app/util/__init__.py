"""Helpers without a domain word: clock, ids, paths, git, logging of repeated failures, tasks."""
