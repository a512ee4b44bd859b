"""Programs that tools run: process groups, their environment and their output."""
