"""The built-in tools. The descriptions for the model are in `../descriptions`."""
