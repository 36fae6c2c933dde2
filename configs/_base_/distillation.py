# Castling-ViT's teacher has 85.5% top-1 and no name. CAFormer-B36, trained on ImageNet-1K alone, has the same 85.5% at 224 pixels
# (Yu et al., "MetaFormer Baselines for Vision"); timm downloads its weights when the training starts.
distillation = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(type="TimmClassifier", model_name="caformer_b36.sail_in1k", pretrained=True),
)
