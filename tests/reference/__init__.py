"""The allocator's rules once more, in plain Python: slow, and meant to be obviously right.

Written from ``docs/rules.md`` alone. It imports nothing of the package it is compared with.
"""
