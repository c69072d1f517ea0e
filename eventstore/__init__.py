"""Where the events are kept."""
