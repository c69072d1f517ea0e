"""The admin API: what a follower knows, over HTTP."""
