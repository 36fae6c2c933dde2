"""Detection on tiles of large images: a model around a detector, and configs with tiles."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.dataset import Compose
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from torch import Tensor

from mmlisa.errors import UserError
from mmlisa.inference.predictor import fill_sample, read_sample
from mmlisa.registry import MODELS
from mmlisa.runtime import Prediction, Tiles, check_tiles
from mmlisa.training.config import find_test_pipeline, type_name

TILE, OVERLAP = 640, 0.2


@MODELS.register_module()
class TiledDetector(BaseModel):
    """A detector that predicts tile by tile, and otherwise is the detector: same losses, same names of parameters.

    The test pipeline reads the whole image and does not resize it. :class:`mmlisa.runtime.Tiles` has the rules: where the
    tiles lie, which detections count, and how the parts of an object are joined. Masks are COCO's run-length encodings.

    Args:
        detector: config of a detector of mmdet.
        tile: side of a tile in pixels of the image.
        overlap: share of a tile that the next one repeats.
        resize: a step for each tile, such as ``dict(type="Resize", scale=(800, 800), keep_ratio=True)``; None for none.
        batch_size: number of tiles that the detector takes at once.
        data_preprocessor: the detector's, if its own config has none; MMEngine's runner passes it.

    Raises:
        UserError: see :func:`mmlisa.runtime.check_tiles`.
    """

    def __init__(
        self,
        detector: dict[str, Any],
        tile: int = TILE,
        overlap: float = OVERLAP,
        resize: dict[str, Any] | None = None,
        batch_size: int = 2,
        data_preprocessor: dict[str, Any] | None = None,
    ) -> None:
        check_tiles(tile, overlap)
        built = MODELS.build(detector, default_args=data_preprocessor and {"data_preprocessor": data_preprocessor})
        super().__init__(data_preprocessor=built.data_preprocessor)
        # The parts are registered once, under the detector's names, and the two modules share them.
        self.__dict__["detector"] = built
        self._parameters, self._buffers, self._modules = built._parameters, built._buffers, built._modules
        self.tile, self.overlap, self.batch_size = tile, overlap, batch_size
        self.resize = resize and Compose([resize])

    def train(self, mode: bool = True) -> "TiledDetector":
        self.detector.train(mode)
        return super().train(mode)

    def init_weights(self) -> None:
        self.detector.init_weights()

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        """Losses of prepared batches (``mode='loss'``), predictions of whole images (``'predict'``)."""
        if mode == "predict":
            return self.test_step({"inputs": inputs, "data_samples": data_samples})
        return self.detector(inputs, data_samples, mode)

    def val_step(self, data: dict[str, Any]) -> list[BaseDataElement]:
        return self.test_step(data)

    def test_step(self, data: dict[str, Any]) -> list[BaseDataElement]:
        """Predict on whole images ``[3, H, W]`` (uint8), which the test pipeline must not have resized, in their pixels."""
        for image, sample in zip(data["inputs"], data["data_samples"], strict=True):
            fill_sample(sample, self._predict(image, sample))
        return data["data_samples"]

    def _predict(self, image: Tensor, sample: BaseDataElement) -> Prediction:
        if tuple(image.shape[1:]) != tuple(sample.ori_shape):
            raise UserError(
                f"test pipeline: it resizes an image from {tuple(sample.ori_shape)} to {tuple(image.shape[1:])}; move its Resize "
                "to the option resize of TiledDetector, which applies it to each tile"
            )
        tiles = Tiles(tuple(image.shape[1:]), self.tile, self.overlap)
        for first in range(0, len(tiles.windows), self.batch_size):
            windows = tiles.windows[first : first + self.batch_size]
            inputs, samples = zip(*(self._cut(image, sample, window) for window in windows), strict=True)
            found = self.detector.test_step({"inputs": list(inputs), "data_samples": list(samples)})
            for index, one in enumerate(found, first):
                tiles.add(index, read_sample(one.cpu()))
        return tiles.merge()

    def _cut(self, image: Tensor, sample: BaseDataElement, window: np.ndarray) -> tuple[Tensor, BaseDataElement]:
        x1, y1, x2, y2 = window.tolist()
        cut, size, scale = image[:, y1:y2, x1:x2], (y2 - y1, x2 - x1), (1.0, 1.0)
        if self.resize is not None:
            results = self.resize(dict(img=np.ascontiguousarray(cut.permute(1, 2, 0).numpy()), img_shape=size))
            cut, scale = torch.from_numpy(results["img"]).permute(2, 0, 1), results["scale_factor"]
        metainfo = dict(ori_shape=size, img_shape=tuple(cut.shape[1:]), scale_factor=scale)
        return cut.contiguous(), type(sample)(metainfo={**sample.metainfo, **metainfo})


def tile_config(cfg: Config, tile: int | None, overlap: float | None = None) -> Config:
    """Return a copy of a config whose detector or segmentor predicts on tiles of ``tile`` pixels.

    A detector becomes a :class:`TiledDetector`, and a ``Resize`` of the test pipeline resizes each tile. A segmentor gets mmseg's
    slide mode, and its test pipeline leaves the image at its size.

    Args:
        cfg: a whole config.
        tile: side of the tiles; 0 for whole images; None for the tiles of the config, if it has any.
        overlap: share of a tile that the next one repeats; None for that of the config, or 0.2.

    Raises:
        UserError: see :func:`mmlisa.runtime.check_tiles`; a classifier.
    """
    plain, tiles = plain_config(cfg)
    tile = tiles.get("tile") if tile is None else tile
    if tile == 0 and cfg.get("default_scope") == "mmseg":
        plain.model.test_cfg = dict(mode="whole")
    if not tile:
        return plain
    overlap = tiles.get("overlap", OVERLAP) if overlap is None else overlap
    check_tiles(tile, overlap)
    cfg = deepcopy(cfg)
    steps = find_test_pipeline(cfg)
    resizing = [step for step in steps if type_name(step).endswith("Resize")]
    steps[:] = [step for step in steps if step not in resizing]
    if type_name(cfg.model) == "TiledDetector":
        cfg.model.update(tile=tile, overlap=overlap)
    elif cfg.get("default_scope") == "mmseg":
        stride = max(round(tile * (1 - overlap)), 1)
        cfg.model.test_cfg = dict(mode="slide", crop_size=(tile, tile), stride=(stride, stride))
    elif cfg.get("default_scope") == "mmdet":
        tiles = dict(tile=tile, overlap=overlap, resize=resizing[0] if resizing else None)
        cfg.model = ConfigDict(type="mmlisa.TiledDetector", detector=cfg.model, **tiles)
    else:
        raise UserError(f"tile={tile}: only detectors and segmentors predict on tiles; leave it out")
    return cfg


def plain_config(cfg: Config) -> tuple[Config, dict[str, Any]]:
    """Return a copy of a config with the detector of a :class:`TiledDetector` in its place, and ``tile`` and ``overlap``.

    The test pipeline gets back the ``resize`` of each tile. Without tiles, the dict is empty.
    """
    cfg = deepcopy(cfg)
    if type_name(cfg.model) != "TiledDetector":
        return cfg, {}
    tiled, cfg.model = cfg.model, cfg.model.detector
    if tiled.get("resize"):
        find_test_pipeline(cfg).insert(1, tiled.resize)
    return cfg, dict(tile=tiled.get("tile", TILE), overlap=tiled.get("overlap", OVERLAP))
