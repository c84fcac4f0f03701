"""diagnostic.data beside a decoder that others wrote (pymongoftdc): every metric of every sample."""

import pytest
from pyftdc import _codec

import labkit

FIXTURES = labkit.LAB.parent / "fixtures/ftdc"
FILES = sorted(path for path in FIXTURES.glob("*/metrics.*"))


def decoded_by_others(path):
    """Every sample of a file: time to values by path. It keeps the seconds of a timestamp, not its increment."""
    samples = {}
    with path.open("rb") as stream:
        for document in _codec.iter_bson_documents(stream, path):
            if document.get("type") != 1:
                continue
            chunk = _codec.decode_metric_document(document)
            paths = [slot.path for slot in chunk.slots]
            for row in zip(*chunk.columns, strict=True):
                values = dict(zip(paths, map(signed, row), strict=True))
                samples[values["start"]] = values
    return samples


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def exported(path):
    """The same by `mongosonar ftdc export`."""
    samples = {}
    for sample in labkit.documents("ftdc", "export", path):
        samples[sample["time_ms"]] = {
            name: value for name, value in sample["metrics"].items() if not name.endswith(".increment")
        }
    return samples


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_metric_of_every_sample(path):
    ours, others = exported(path), decoded_by_others(path)
    assert others
    assert ours.keys() == others.keys()
    for time, values in others.items():
        assert ours[time] == values, time
    assert min(map(len, others.values())) > 1_000
