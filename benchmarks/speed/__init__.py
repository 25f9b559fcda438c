"""The parts of `make bench`: what is served, by whom, what came of it, and the page that says so.

Reading order: workloads.py, systems.py, the three serve_*.py, running.py, agreement.py, memory.py,
results.py, page.py, figure.py. The command is `benchmarks.throughput`.
"""
