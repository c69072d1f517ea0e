import pytest

from .story import Story, play


@pytest.fixture(scope="session")
def story() -> Story:
    """All that happened, played once for every test that looks at it."""
    return play()
