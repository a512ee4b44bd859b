"""Subprocesses of tools: process groups, environment and output."""
