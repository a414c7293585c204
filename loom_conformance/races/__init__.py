"""The named races of the runtime: nodes, right outcomes, and the wrong runtimes that must lose."""
