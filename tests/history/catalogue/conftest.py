from tests.services import postgresql

__all__ = ["postgresql"]
