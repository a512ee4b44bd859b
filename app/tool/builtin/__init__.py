"""The built-in tools: one module per tool. The descriptions for the model are in `../descriptions`."""
