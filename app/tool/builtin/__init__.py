"""One module a tool, with its parameters; its description is in `../descriptions`. What tools share is beside this package."""
