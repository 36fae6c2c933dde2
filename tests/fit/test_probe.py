"""What a probe measures, and what it takes for free memory."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from mmlisa.fit import probe


def test_memory_is_measured_on_the_largest_images(monkeypatch):
    """Large batches are padded to an image of nearly that size; two images may both be small."""
    seen = []

    class Model(torch.nn.Linear):
        def data_preprocessor(self, batch, training):
            return dict(batch=batch)

        def forward(self, batch, mode):
            seen.append(tuple(batch))
            return self.weight.sum()

        def parse_losses(self, losses):
            return (losses,)

    steps = [dict(type="Load"), dict(type="RandomResize", ratio_range=(0.7, 1.3))]
    cfg = Config(dict(train_dataloader=dict(dataset=dict(pipeline=steps))))
    monkeypatch.setattr(probe, "load_config", lambda name: cfg)
    monkeypatch.setattr(probe, "build_model", lambda cfg: Model(1, 1))
    monkeypatch.setattr(probe, "peak_extra_bytes", lambda step, device: step() or 8)
    monkeypatch.setattr(probe.Runner, "build_dataloader", lambda loader, seed: [loader.dataset.pipeline[1].ratio_range])
    assert probe.probe("a.py")["per_image"] == 4
    assert seen == [(1.3, 1.3), (0.7, 1.3), (0.7, 1.3), (0.7, 1.3)]


@pytest.mark.parametrize(
    ("limit", "expected"), [("3000000", 2_250_000), ("max", 1024 * 4_000_000), (str(2**60), 1024 * 4_000_000)]
)
def test_a_container_has_what_its_limit_leaves_without_caches(monkeypatch, limit, expected):
    files = {
        "meminfo": "MemTotal: 8000000 kB\nMemFree: 100 kB\nMemAvailable: 4000000 kB",
        "memory.max": limit,
        "memory.current": "1000000",
        "memory.stat": "anon 700000\ninactive_file 250000",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: f"{files[path.name]}\n")
    assert probe._available_bytes() == expected
