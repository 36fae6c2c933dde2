# Castling-ViT's teacher has 85.5% top-1 and no name. CAFormer-B36, trained on ImageNet-1K alone, has 85.506% at 224 pixels
# (timm's results/results-imagenet.csv); timm downloads its weights when the training starts.
distillation = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(type="TimmClassifier", model_name="caformer_b36.sail_in1k", pretrained=True),
)
