"""What does a filter file say of itself? The first 4,096 bytes, format 1.

Little-endian. Numbers stand at fixed places, so that the header is written by one ``write`` of one
memory page: a killed process leaves the old header or the new one, never half of each.

====== ===== ==========================================================================
offset bytes what
====== ===== ==========================================================================
     0     8 magic ``BLOOMDUP``
     8     4 format version, 1
    12     4 CRC-32 of all 4,096 bytes with this field 0
    16     4 flags: bit 0 clean
    20     4 number of layers, 1 to 58
    24    16 scheme name, ASCII, padded with zeros
    40    16 layout name, likewise
    56    16 id of the filter, random; the store beside it carries the same
    72    32 secret of the filter
   104     8 time of creation, seconds since 1970
   112     8 capacity asked for, keys
   120     8 error rate asked for, float64
   128     4 length of the identity in bytes
   256  48*n layers, oldest first: offset u64, bits u64, hashes u32, width of a counter u32
             (0: there are none), capacity u64, error rate float64, keys u64
  3072  1024 identity: JSON object of strings, UTF-8, padded with zeros
====== ===== ==========================================================================
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct

import scrapy_bloomdupe.hashing as hashing
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt, StateMismatch

HEADER_SIZE = 4096
FORMAT_VERSION = 1
MAX_LAYERS = 58

#: Number of layers, names, id and secret: what a mapping of the file goes by.
MARK = slice(20, 104)

_MAGIC = b"BLOOMDUP"
_CLEAN = 1
_fixed = Struct("<8s I I I I 16s 16s 16s 32s Q Q d I")
_layer = Struct("<Q Q I I Q d Q")
_LAYERS_AT = 256
_IDENTITY_AT = 3072
#: What the keys mean.
IDENTITY = slice(_IDENTITY_AT, HEADER_SIZE)
_CHECKSUM_AT = 12


@dataclass(frozen=True)
class LayerHeader:
    """One layer: *offset* and size in the file, and what it was made for.

    Attributes:
        num_bits: bits of the array, or counters.
        width: bits of the file for each.
    """

    offset: int
    num_bits: int
    num_hashes: int
    capacity: int
    error_rate: float
    num_keys: int
    width: int = 1

    @property
    def num_bytes(self) -> int:
        return -(-self.num_bits * self.width // 8)

    @property
    def end(self) -> int:
        return self.offset + self.num_bytes


@dataclass(frozen=True)
class Header:
    """All that a filter file says of itself; see the module for the encoding."""

    scheme: str
    layout: str
    filter_id: bytes
    secret: bytes
    created: int
    capacity: int
    error_rate: float
    layers: tuple[LayerHeader, ...]
    identity: Mapping[str, str]
    clean: bool

    @property
    def end(self) -> int:
        """The least size of the file in bytes."""
        return max(layer.end for layer in self.layers)

    def pack(self) -> bytes:
        """Return the 4,096 bytes.

        Raises:
            ConfigurationError: the identity does not fit.
        """
        identity = json.dumps(dict(self.identity), sort_keys=True).encode()
        if len(identity) > HEADER_SIZE - _IDENTITY_AT:
            raise ConfigurationError(
                f"the identity of the keys takes {len(identity)} bytes, a header holds "
                f"{HEADER_SIZE - _IDENTITY_AT}: {identity[:80]!r}...; use shorter names"
            )
        data = bytearray(HEADER_SIZE)
        _fixed.pack_into(
            data,
            0,
            _MAGIC,
            FORMAT_VERSION,
            0,
            _CLEAN if self.clean else 0,
            len(self.layers),
            self.scheme.encode(),
            self.layout.encode(),
            self.filter_id,
            self.secret,
            self.created,
            self.capacity,
            self.error_rate,
            len(identity),
        )
        for i, layer in enumerate(self.layers):
            _layer.pack_into(
                data,
                _LAYERS_AT + i * _layer.size,
                layer.offset,
                layer.num_bits,
                layer.num_hashes,
                layer.width if layer.width > 1 else 0,
                layer.capacity,
                layer.error_rate,
                layer.num_keys,
            )
        data[_IDENTITY_AT : _IDENTITY_AT + len(identity)] = identity
        data[_CHECKSUM_AT : _CHECKSUM_AT + 4] = zlib.crc32(data).to_bytes(4, "little")
        return bytes(data)


def peek_layout(data: bytes) -> str:
    """Return the layout that the first bytes of a file name, whatever else they are; empty: none."""
    if len(data) < _fixed.size:
        return ""
    return bytes(_fixed.unpack_from(data)[6]).rstrip(b"\0").decode("ascii", "replace")


def unpack(data: bytes, name: str, file_size: int) -> Header:
    """Return the header that *data* holds.

    Args:
        data: the first bytes of the file, at most 4,096.
        name: what to call the file in messages.
        file_size: its size in bytes.

    Raises:
        StateCorrupt: something does not check out; the message says what was found and expected.
        StateMismatch: a format that this release does not read.
    """

    def corrupt(what: str) -> StateCorrupt:
        return StateCorrupt(
            f"{name}: {what}; the file was left as it is. Run `bloomdupe rebuild` on its directory to "
            "make a new filter from the exact store, restore the file from a copy, or move the "
            "directory aside to start anew"
        )

    if len(data) < HEADER_SIZE:
        raise corrupt(f"the file has {len(data)} bytes, its header alone has {HEADER_SIZE}")
    found = _fixed.unpack_from(data)
    if found[0] != _MAGIC:
        raise corrupt(f"it starts with {found[0]!r}, a filter file starts with {_MAGIC!r}")
    stored = found[2]
    actual = zlib.crc32(data[:_CHECKSUM_AT] + bytes(4) + data[_CHECKSUM_AT + 4 : HEADER_SIZE])
    if stored != actual:
        raise corrupt(f"the header's checksum is {stored:#010x}, its content gives {actual:#010x}")
    if found[1] != FORMAT_VERSION:
        raise StateMismatch(
            f"{name} has format {found[1]}, this release reads format {FORMAT_VERSION}; "
            "upgrade scrapy-bloomdupe"
        )
    num_layers = found[4]
    if not 1 <= num_layers <= MAX_LAYERS:
        raise corrupt(f"it names {num_layers} layers, there can be 1 to {MAX_LAYERS}")
    layers = tuple(
        LayerHeader(offset, num_bits, num_hashes, capacity, error_rate, num_keys, width or 1)
        for offset, num_bits, num_hashes, width, capacity, error_rate, num_keys in (
            _layer.unpack_from(data, _LAYERS_AT + i * _layer.size) for i in range(num_layers)
        )
    )
    end = HEADER_SIZE
    for i, layer in enumerate(layers):
        sane = (
            layer.offset >= end
            and layer.num_bits >= 1
            and 1 <= layer.num_hashes <= sizing.MAX_HASHES
            and layer.capacity >= 1
            and 1 <= layer.width <= 8
            and math.isfinite(layer.error_rate)
        )
        if not sane:
            raise corrupt(f"layer {i} makes no sense: {layer}")
        end = layer.end
    if file_size < end:
        raise corrupt(f"the file has {file_size} bytes, its {num_layers} layers need {end}")
    try:
        identity = json.loads(data[_IDENTITY_AT : _IDENTITY_AT + found[12]])
        header = Header(
            scheme=found[5].rstrip(b"\0").decode("ascii"),
            layout=found[6].rstrip(b"\0").decode("ascii"),
            filter_id=found[7],
            secret=found[8],
            created=found[9],
            capacity=found[10],
            error_rate=found[11],
            layers=layers,
            identity={str(k): str(v) for k, v in identity.items()},
            clean=bool(found[3] & _CLEAN),
        )
        hashing.get_scheme(header.scheme)
    except (ValueError, AttributeError) as exc:
        raise corrupt(f"its names cannot be read: {exc}") from exc
    return header
