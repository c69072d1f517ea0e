"""Tests of the whole manager: core, log, pools, in processes that are killed."""
