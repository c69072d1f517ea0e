"""The demo: an engine in a process of its own, killed, restarted and damaged before your eyes."""
