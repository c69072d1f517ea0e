"""Steps of the catalogue's schema."""
