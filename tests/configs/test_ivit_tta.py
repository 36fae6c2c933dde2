"""UperNet's multi-scale test: ``tools/test.py --tta`` sees every image at six scales, plain and flipped."""

from mmengine.registry import DefaultScope
from mmseg.registry import TRANSFORMS

from mmlisa.training.config import load_config, set_tta


def test_tta_scales_and_flips():
    cfg = load_config("upernet_ivit_t_160k_ade20k.py")
    set_tta(cfg)
    assert (cfg.model.type, cfg.model.module.type) == ("SegTTAModel", "EncoderDecoder")
    with DefaultScope.overwrite_default_scope("mmseg"):
        step = TRANSFORMS.build(cfg.test_dataloader.dataset.pipeline[-1])
    views = [(compose.transforms[0].scale[1], compose.transforms[1].prob) for compose in step.subroutines]
    assert sorted(views) == [(side, flip) for side in (256, 384, 512, 640, 768, 896) for flip in (0.0, 1.0)]
