"""What ``bench/event_store.py`` measures: durable events, replay, opening and starting."""
