"""Han et al., "FLatten Transformer: Vision Transformer using Focused Linear Attention" (ICCV 2023), and its official code.

FLOPs are the multiply-accumulates of convolutions, linear layers and products (`products`). The classifiers also match the
official code. The dense models have no official code; following the authors' answers, their linear blocks are global. Where the
paper's architecture tables contradict its columns of parameters and FLOPs, this package follows the columns.
"""

from typing import Any

from research.paper_tables import Row, macs, params

TITLE = "FLatten: parameters and FLOPs"

ABSENT = [
    ("accuracies of Tables 1 to 8", "they need the full trainings"),
]

_AT_224, _AT_384 = (3, 224, 224), (3, 384, 384)


def _classifier(backbone: str, channels: int, **options: Any) -> dict[str, Any]:
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type=f"mmlisa.{backbone}", out_indices=[-1], **options),
        neck=dict(type="mmpretrain.GlobalAveragePooling"),
        head=dict(type="mmpretrain.LinearClsHead", num_classes=1000, in_channels=channels),
    )


def _deit(**options: Any) -> dict[str, Any]:
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type="mmlisa.FLattenDeiT", out_type="cls_token", **options),
        head=dict(type="mmpretrain.LinearClsHead", num_classes=1000, in_channels=192),
    )


def _swin(**options: Any) -> dict[str, Any]:
    return _classifier("FLattenSwin", 768, **options)


_PVT_NORM = "with the last norm of 1,024 parameters that the official code holds and never applies"

_SWIN_T = params("29 M", explained=True, note="the paper prints Swin-T's own 28.3 M as 29 M, too")

ROWS = [
    *(
        Row(
            "Table 8",
            label,
            _classifier(backbone, channels, arch=arch),
            _AT_384 if "384" in arch else _AT_224,
            (params(p, p_official, note=note), macs(f, f_official)),
        )
        for label, backbone, arch, channels, p, p_official, f, f_official, note in (
            ("FLatten-PVT-T", "FLattenPVT", "tiny", 512, "12.2 M", 12.151, "2.0 G", 2.04, _PVT_NORM),
            ("FLatten-PVT-S", "FLattenPVT", "small", 512, "21.7 M", 21.670, "4.0 G", 4.03, ""),
            ("FLatten-PVT-M", "FLattenPVT", "medium", 512, "37.2 M", 37.242, "7.0 G", 7.04, ""),
            ("FLatten-PVT-L", "FLattenPVT", "large", 512, "50.6 M", 50.649, "10.4 G", 10.38, ""),
            ("FLatten-PVTv2-B0", "FLattenPVTv2", "b0", 256, "3.6 M", 3.595, "0.6 G", 0.58, ""),
            ("FLatten-PVTv2-B1", "FLattenPVTv2", "b1", 512, "12.9 M", 12.931, "2.2 G", 2.22, ""),
            ("FLatten-PVTv2-B2", "FLattenPVTv2", "b2", 512, "22.6 M", 22.548, "4.3 G", 4.25, ""),
            ("FLatten-PVTv2-B3", "FLattenPVTv2", "b3", 512, "38.3 M", 38.274, "7.3 G", 7.28, ""),
            ("FLatten-PVTv2-B4", "FLattenPVTv2", "b4", 512, "51.8 M", 51.837, "10.7 G", 10.68, ""),
            ("FLatten-Swin-T", "FLattenSwin", "tiny", 768, "29 M", 29.192, "4.5 G", 4.48, ""),
            ("FLatten-Swin-S", "FLattenSwin", "small", 768, "51 M", 50.510, "8.7 G", 8.73, ""),
            ("FLatten-Swin-B", "FLattenSwin", "base", 1024, "89 M", 88.972, "15.4 G", 15.42, ""),
            ("FLatten-Swin-B, 384", "FLattenSwin", "base-384", 1024, "91 M", 91.434, "46.5 G", 46.38, ""),
            ("FLatten-CSwin-T", "FLattenCSwin", "tiny", 512, "21 M", 21.202, "4.3 G", 4.32, ""),
            ("FLatten-CSwin-S", "FLattenCSwin", "small", 512, "35 M", 35.452, "6.9 G", 6.78, ""),
            ("FLatten-CSwin-B", "FLattenCSwin", "base", 768, "75 M", 74.867, "15.0 G", 14.91, ""),
            ("FLatten-CSwin-B, 384", "FLattenCSwin", "base-384", 768, "78 M", 78.369, "46.4 G", 46.31, ""),
        )
    ),
    Row("Table 8", "FLatten-DeiT-T", _deit(), _AT_224, (params("6.1 M", 6.19), macs("1.1 G", 1.145))),
    *(
        Row("Table 3a", label, _deit(attention=dict(type=operator)), _AT_224, (params(p, reading), macs("1.1 G", f)))
        for label, operator, p, reading, f in (
            ("Hydra", "HydraAttention", "5.7 M", 5.717, 1.075),
            ("Efficient", "EfficientAttention", "5.7 M", 5.717, 1.133),
            ("Linear angular", "LinearAngularAttention", "5.7 M", 5.718, 1.137),
            ("Enhanced", "EnhancedLinearAttention", "5.8 M", 5.810, 1.150),
        )
    ),
    *(
        Row("Table 3b", label, _swin(attention=dict(type=operator)), _AT_224, (_SWIN_T, macs("4.5 G")))
        for label, operator in (
            ("Hydra", "HydraAttention"),
            ("Efficient", "EfficientAttention"),
            ("Linear angular", "LinearAngularAttention"),
            ("Enhanced", "EnhancedLinearAttention"),
        )
    ),
    *(
        Row("Table 4", label, _deit(attention=attention), _AT_224, (params(p), macs("1.1 G")))
        for label, attention, p in (
            ("Vanilla linear attention", dict(type="ReLULinearAttention"), "5.7 M"),
            ("+ focused function", dict(kernel_size=0, position=False), "5.7 M"),
        )
    ),
    *(
        Row("Table 5", f"FLatten-Swin-T, p = {p}", _swin(attention=dict(focusing_factor=p)), _AT_224, (_SWIN_T,))
        for p in (2, 3, 4, 8, 32)
    ),
    *(
        Row(
            "Table 6",
            f"FLatten-Swin-T, window {window}",
            _swin(attention=dict(window=window, shift=True)),
            _AT_224,
            (_SWIN_T, macs("4.5 G")),
        )
        for window in (7, 14, 28, 56)
    ),
    *(
        Row(
            "Table 7",
            f"FLatten-Swin-T, {attn_type}",
            _swin(attn_type=attn_type),
            _AT_224,
            (p, macs("4.5 G")),
        )
        for attn_type, p in (
            ("LSSS", params("29 M")),
            ("LLSS", params("29 M")),
            ("LLLS", params("30 M")),
            ("LLLL", params("30 M")),
            ("SSSS", _SWIN_T),
        )
    ),
    *(
        Row(
            table,
            label,
            config,
            shape,
            (params(p, p_ours), macs(f, f_ours, note=note)),
        )
        for table, label, config, shape, p, p_ours, f, f_ours, note in (
            (
                "Table 1",
                "Semantic FPN, FLatten-PVT-T",
                "semantic_fpn_flatten_pvt_t_80k_ade20k.py",
                (3, 512, 2048),
                "16 M",
                15.9,
                "169 G",
                128.6,
                "perhaps the formula of softmax attention",
            ),
            (
                "Table 1",
                "UperNet, FLatten-Swin-T",
                "upernet_flatten_swin_t_160k_ade20k.py",
                (3, 512, 2048),
                "60 M",
                60.85,
                "946 G",
                943.9,
                "",
            ),
            (
                "Table 1",
                "UperNet, FLatten-Swin-S",
                "upernet_flatten_swin_s_160k_ade20k.py",
                (3, 512, 2048),
                "82 M",
                82.16,
                "1038 G",
                1037.0,
                "",
            ),
            (
                "Table 2a",
                "Mask R-CNN, FLatten-PVT-T",
                "mask_rcnn_flatten_pvt_t_1x_coco.py",
                (3, 800, 1280),
                "32 M",
                31.8,
                "244 G",
                211.9,
                "perhaps the formula of softmax attention",
            ),
            (
                "Table 2a",
                "Mask R-CNN, FLatten-Swin-T",
                "mask_rcnn_flatten_swin_t_1x_coco.py",
                (3, 800, 1280),
                "49 M",
                48.7,
                "268 G",
                266.3,
                "",
            ),
            (
                "Table 2b",
                "Cascade Mask R-CNN, FLatten-Swin-T",
                "cascade_mask_rcnn_flatten_swin_t_3x_coco.py",
                (3, 800, 1280),
                "87 M",
                86.5,
                "747 G",
                745.1,
                "",
            ),
            (
                "Table 2b",
                "Cascade Mask R-CNN, FLatten-Swin-S",
                "cascade_mask_rcnn_flatten_swin_s_3x_coco.py",
                (3, 800, 1280),
                "108 M",
                107.9,
                "841 G",
                837.2,
                "",
            ),
        )
    ),
]
