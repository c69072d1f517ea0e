"""Two descriptors compared: what differs, and which bytes of one side's pages go where in ours.

Stages of a pipeline, or two engines, hold different layers; the third tensor of one is not the
third of the other. So a tensor is known by its layer, group and component, never by its position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .abi import Abi, AbiComponent, Rope
from .errors import ConfigError

__all__ = ["Pair", "Pairing", "differences", "pair_components"]

Name = tuple[int, str, str]  # layer, group, component


def _text(value: object) -> str:
    if isinstance(value, Rope):
        return f"theta {value.theta}, dim {value.dim}, scaling {_text(value.scaling)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return "none" if value is None else str(value)


def _between(what: str, expected: object, found: object) -> str:
    return f"{what}: expected {_text(expected)}, found {_text(found)}"


def _parts(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    for field in fields(a):
        expected, found = getattr(a, field.name), getattr(b, field.name)
        if expected != found:
            yield field.name, expected, found


def differences(a: Abi, b: Abi) -> tuple[str, ...]:
    """Say what differs, one sentence a field.

    Args:
        a: what the scheduled kernel reads.
        b: what the bytes were written in.

    Returns:
        Sentences such as "dtype of entry: expected bf16, found fp32", in the order of the
        fields; empty exactly when the two are equal.
    """
    found: list[str] = []
    for name, mine, theirs in _parts(a, b):
        if name == "components":
            names = tuple(tuple(part.name for part in parts) for parts in (mine, theirs))
            if names[0] != names[1]:
                found.append(_between(name, *names))
            for part in mine:
                other = b.component(part.name) or part
                found += [_between(f"{n} of {part.name}", x, y) for n, x, y in _parts(part, other)]
        elif isinstance(mine, Rope) and isinstance(theirs, Rope):
            found += [_between(f"rope {n}", x, y) for n, x, y in _parts(mine, theirs)]
        else:
            found.append(_between(name, mine, theirs))
    return tuple(found)


@dataclass(frozen=True)
class Pair:
    """One layer of one component, which both sides hold in equal form.

    Args:
        layer: number in the model.
        group: name of the group.
        component: name of the tensor.
        source: index of the source's descriptor.
        target: index of the target's descriptor.
        source_offset: byte in a source page at which the layer's rows begin.
        target_offset: byte in a target page at which they begin.
        num_bytes: of the rows, equal on both sides.
    """

    layer: int
    group: str
    component: str
    source: int
    target: int
    source_offset: int
    target_offset: int
    num_bytes: int


@dataclass(frozen=True)
class Pairing:
    """What a transfer can carry.

    Args:
        pairs: in the target's order; only tensors of equal form.
        missing: what the target has and the source lacks: "L3/c128" for all of a layer in a
            group, "L3/c128.entry" for one component of it.
        differing: "<group>: <sentence>" for groups whose descriptors contradict each other; none
            of their tensors is in ``pairs``.
        usable: names of the target's groups that arrive whole, in the target's order.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[str, ...]
    differing: tuple[str, ...]
    usable: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    abi: Abi
    index: int
    component: AbiComponent
    offset: int


def _places(side: str, abis: Sequence[Abi]) -> Iterator[tuple[Name, _Place]]:
    seen: set[Name] = set()
    for index, abi in enumerate(abis):
        for position, layer in enumerate(abi.layers):
            for component in abi.components:
                name = (layer, abi.group, component.name)
                if name in seen:
                    raise ConfigError(
                        f"pairing: expected every tensor of the {side} once, found "
                        f"L{layer}/{abi.group}.{component.name} twice"
                    )
                seen.add(name)
                offset = component.offset + position * component.layer_bytes
                yield name, _Place(abi, index, component, offset)


def _contradictions(target: Abi, source: Abi) -> tuple[str, ...]:
    """What differs besides which layers and components each side has, and so where they lie."""
    common = {part.name for part in target.components} & {part.name for part in source.components}

    def form(abi: Abi) -> Abi:
        parts = tuple(
            replace(part, offset=0)
            for part in sorted(abi.components, key=lambda part: part.name)
            if part.name in common
        )
        return replace(abi, components=parts, layers=(0,), page_bytes=1)

    return differences(form(target), form(source)) if common else ()


def _missing(abi: Abi, absent: set[Name]) -> Iterator[str]:
    for layer in abi.layers:
        names = [part.name for part in abi.components if (layer, abi.group, part.name) in absent]
        if len(names) == len(abi.components):
            yield f"L{layer}/{abi.group}"
        else:
            yield from (f"L{layer}/{abi.group}.{name}" for name in names)


def pair_components(source: Sequence[Abi], target: Sequence[Abi]) -> Pairing:
    """Pair the tensors of two sides by layer, group and component.

    A side may name a group several times with other layers, as stages of a pipeline do. Which
    layers and components a side has, and where in a page they lie, may differ; all else must
    agree.

    Args:
        source: descriptors of the pages that come, in any order.
        target: descriptors of the pages to fill, in any order.

    Raises:
        ConfigError: a side names one tensor twice.
    """
    held = dict(_places("source", source))
    wanted = dict(_places("target", target))
    differing: dict[str, None] = {}  # insertion order
    agrees: dict[tuple[int, int], bool] = {}
    pairs = []
    for name, to in wanted.items():
        if name not in held:
            continue
        of = held[name]
        both = (of.index, to.index)
        if both not in agrees:
            sentences = _contradictions(to.abi, of.abi)
            agrees[both] = not sentences
            differing.update((f"{to.abi.group}: {sentence}", None) for sentence in sentences)
        if agrees[both]:
            layer, group, component = name
            pairs.append(
                Pair(layer, group, component, *both, of.offset, to.offset, to.component.layer_bytes)
            )
    paired = {(pair.layer, pair.group, pair.component) for pair in pairs}
    broken = {name[1] for name in wanted.keys() - paired}
    absent = wanted.keys() - held.keys()
    return Pairing(
        tuple(pairs),
        tuple(text for abi in target for text in _missing(abi, absent)),
        tuple(differing),
        tuple(dict.fromkeys(abi.group for abi in target if abi.group not in broken)),
    )
