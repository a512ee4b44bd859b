"""One turn: the loop that reads the conversation, decides and acts, and the steps that it is made of."""
