"""What all models share: names of states and kinds, keys, listings."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Bucket",
    "Cursor",
    "Histogram",
    "Key",
    "KindName",
    "Listing",
    "Model",
    "ProblemDetails",
    "Reader",
    "ReasonCount",
    "StateName",
]

T = TypeVar("T")

KindName = Literal["COMPRESSED", "TAIL", "SWA", "INDEXER", "DISK"]
StateName = Literal[
    "FREE", "RESERVED", "WRITING", "OPEN", "SEALED", "LOADING", "DRAINING", "QUARANTINED"
]
Key = Annotated[
    str,
    Field(
        pattern="^[0-9a-f]{32}$",
        description="Of a prefix, 32 hexadecimal digits.",
        examples=["3f9c2b7a5d10e4c88f61a2b3c4d5e6f7"],
    ),
]
Cursor = Annotated[
    str | None,
    Field(description="Ask with it for the next rows; null where there are no more."),
]


class Model(BaseModel):
    """What every model is: nothing unknown, nothing changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Listing(Model, Generic[T]):
    """Some rows, and where to go on."""

    items: list[T]
    next: Cursor = None
    seqno: int = Field(description="The last event that these rows tell of.", examples=[48213])


class ProblemDetails(Model):
    """An error, as RFC 9457 has it."""

    type: str = Field(examples=["urn:kvstrata:problem:not-found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(
        description="What was expected, what was found, and what to do.",
        examples=["expected a page that the pool has, found c4 page 0"],
    )
    errors: list[dict[str, str]] | None = Field(
        default=None, description="Places of the request, and what is expected there."
    )


class Reader(Model):
    """How the scheduled kernel reads a group."""

    abi: int = Field(description="Bits of the ABI's digest, as they stand in stamps.")
    version: int = Field(description="Of the compression mapping, likewise.")
    is_kernel_ready: bool
    is_mapping_ready: bool


class Bucket(Model):
    """Observations up to a bound."""

    up_to: float
    count: int


class Histogram(Model):
    """Observations by size, cumulative."""

    count: int
    sum: float
    buckets: list[Bucket]


class ReasonCount(Model):
    """How often something happened for one reason."""

    reason: str = Field(examples=["BANDWIDTH"])
    count: int
