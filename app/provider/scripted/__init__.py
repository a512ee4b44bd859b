"""A provider without a language model: plays the turns of a script, or answers by rules."""
