"""What claims ask of volumes that any claim may have, and of pools where volumes are made; and which are had first."""

from __future__ import annotations

from typing import NamedTuple

from ..state.labelselector import LabelSelector
from .records import CapacityInfo, VolumeInfo


class VolumeDemand(NamedTuple):
    """What a claim asks of a volume that any claim may have, but for the class."""

    #: Bytes.
    size: int
    mode: str
    access_modes: frozenset[str]
    attributes_class: str
    selector: LabelSelector | None


def size_of(volume: VolumeInfo) -> tuple[int, str]:
    return volume.capacity, volume.name


def place_of(capacity: CapacityInfo) -> tuple[str, str]:
    return capacity.namespace, capacity.name


def is_large_enough(capacity: CapacityInfo, size: int) -> bool:
    return capacity.limit >= size


def could_hold(volume: VolumeInfo, size: int, mode: str) -> bool:
    return volume.capacity >= size and volume.volume_mode == mode


def could_be_had(volume: VolumeInfo, demand: VolumeDemand) -> bool:
    return (
        could_hold(volume, demand.size, demand.mode)
        and volume.attributes_class == demand.attributes_class
        and (demand.selector is None or demand.selector.matches(volume.labels))
        and demand.access_modes <= volume.access_modes
    )
