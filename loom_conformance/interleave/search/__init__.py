"""Which schedule is run next: strategies that know steps and what they touch, and nothing else."""
