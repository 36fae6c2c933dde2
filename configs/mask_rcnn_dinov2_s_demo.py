# mask_rcnn_dinov3_s_demo.py with DINOv2-S, whose patches of 14 pixels make maps of other strides. It starts from random weights,
# from DINOv2's by `mmlisa train mask_rcnn_dinov2_s_demo.py --pretrained timm:vit_small_patch14_dinov2.lvd142m`.
_base_ = "./mask_rcnn_dinov3_s_demo.py"

model = dict(
    data_preprocessor=dict(pad_size_divisor=56),
    backbone=dict(type="mmlisa.DINOv2"),
    rpn_head=dict(anchor_generator=dict(strides=[3.5, 7, 14, 28, 56])),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=[3.5, 7, 14, 28]),
        mask_roi_extractor=dict(featmap_strides=[3.5, 7, 14, 28]),
    ),
)
