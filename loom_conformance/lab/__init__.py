"""How a suite drives a store: write paths, bounded calls, bursts, child processes, faults, histories."""
