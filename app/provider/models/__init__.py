"""The catalogue of models, their capabilities and prices, and the selection of the model for a prompt."""
