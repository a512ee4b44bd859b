"""Searching files with ripgrep."""
