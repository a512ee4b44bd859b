"""A provider without a language model: it plays turns that were written down, or answers by rule."""
