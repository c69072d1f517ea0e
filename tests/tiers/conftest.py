from ..services import postgresql

__all__ = ["postgresql"]
