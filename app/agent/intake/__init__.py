"""What comes in: prompts, commands and shell lines, on their way to a stored message and a turn."""
