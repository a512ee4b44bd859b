"""Which models there are, what they can do and cost, and which one a prompt runs on."""
