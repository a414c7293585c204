"""The contract: the rules as data, and the model store that executes them."""
