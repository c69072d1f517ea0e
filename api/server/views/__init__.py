"""Rows of the API, made of a follower's tables; no web framework here."""
