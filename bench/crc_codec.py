"""How fast checksums and codecs are, by the functions that brokers and clients call.

CRC-32C over batches of several sizes; each codec packs and unpacks one batch of values like JSON.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

from measuring import GB, MB, Arguments, Figures, Meter, middle, repeat, report, versions
from tidelog.wire.codecs import Codec, compress, decompress
from tidelog.wire.crc import crc32c
from workloads import values

_CODECS = tuple(codec for codec in Codec if codec is not Codec.NONE)


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["crc_codec.py", "crc_codec.py --size 100 --batch 1000000"])
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--batch", type=int, default=65_536, help="bytes a codec packs (65536)")
    asked.add_argument("--sizes", type=int, nargs="+", default=[1024, 16_384, 1 << 20], help="CRC")
    asked.add_argument("--seconds", type=float, default=0.3, help="of each figure (0.3)")
    return asked


def seconds_each(call: Callable[[], object], seconds: float) -> float:
    """Processor time of one call."""
    count, began = 0, time.process_time()
    while (spent := time.process_time() - began) < seconds:
        for _ in range(10):
            call()
        count += 10
    return spent / count


def crc_rates(asked: argparse.Namespace) -> Figures:
    figures = {}
    for size in asked.sizes:
        data = os.urandom(size)
        spent = seconds_each(partial(crc32c, data), asked.seconds)
        figures[f"crc_{size}_gb_per_s"] = round(size / GB / spent, 2)
        figures[f"crc_{size}_us"] = round(1e6 * spent, 2)
    return figures


def codec_rates(asked: argparse.Namespace) -> Figures:
    content = b"".join(values(asked.size, count=-(-asked.batch // asked.size)))[: asked.batch]
    figures: Figures = {}
    for codec in _CODECS:
        packed = compress(codec, content)
        assert decompress(codec, packed) == content
        for name, call in _both_ways(codec, content, packed).items():
            spent = seconds_each(call, asked.seconds)
            figures[f"{name}_{codec.name.lower()}_mb_per_s"] = round(len(content) / MB / spent, 1)
        figures[f"{codec.name.lower()}_packs"] = round(len(content) / len(packed), 2)
    return figures


def _both_ways(codec: Codec, content: bytes, packed: bytes) -> dict[str, Callable[[], bytes]]:
    return {
        "compress": lambda: compress(codec, content),
        "decompress": lambda: decompress(codec, packed),
    }


def one(asked: argparse.Namespace) -> Figures:
    meter = Meter([])
    figures = {**crc_rates(asked), **codec_rates(asked)}
    return {**figures, "other_share": meter.stop()["other_share"]}


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    names = [name for name in runs[0] if name not in {"other_share", "noisy"}]
    settings = {"size": asked.size, "batch": asked.batch, "versions": versions("crc32c", "cramjam")}
    report("crc_codec", settings, {name: middle(runs, name) for name in names}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
