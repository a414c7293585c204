"""How a suite drives a store: bounded calls, write paths, bursts, processes, faults, histories."""
