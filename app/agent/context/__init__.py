"""What the model is sent: the conversation, the system prompt, and how much of its window they take."""
