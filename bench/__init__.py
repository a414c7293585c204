"""Measurements, not tests: `python -m bench` measures the project beside what it is compared with.

Each module of `MODULES` in `__main__` has `async def measure(plan)`, an asynchronous generator of
`pairs.Result`. The numbers are of the machine at hand; only ratios of neighbours mean much.
"""
