"""Tests of the public face."""
