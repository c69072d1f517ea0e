"""What the admin API answers, as pydantic models."""
