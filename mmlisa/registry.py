"""mmlisa's registries: children of MMEngine's roots under the scope ``mmlisa``.

For ``type='mmlisa.X'`` in any OpenMMLab config, MMEngine imports this module, and the registry imports the module of ``X``. The
config needs no ``custom_imports``.
"""

from importlib import import_module
from importlib.util import find_spec

from mmengine import registry as roots

# The library that a module of mmlisa extends. Where it is missing, the module's names are unknown.
_LIBRARIES = {
    "models.necks": "mmdet",
    "models.dense_heads": "mmdet",
    "models.heads": "mmpretrain",
    "datasets.coco": "mmdet",
    "datasets.coco_metric": "mmdet",
    "datasets.segmentation": "mmseg",
    "datasets.classification": "mmpretrain",
    "video": "mmpretrain",
}
# Classes whose import must not wait for that of the other libraries.
_OWN_MODULES = {
    "PairedSegDataset": "mmlisa.datasets.segmentation",
    "DemoSegDataset": "mmlisa.datasets.segmentation",
    "DemoClsDataset": "mmlisa.datasets.classification",
    "CocoMetric": "mmlisa.datasets.coco_metric",
    "RandomTile": "mmlisa.datasets.coco",
    "RealAccuracy": "mmlisa.datasets.classification",
}


class _Registry(roots.Registry):
    """Registry that imports its locations one after the other until a name is registered.

    A backbone therefore needs neither mmdet nor mmpretrain, whose imports take seconds. A location may be a package that imports
    its names at their first use.
    """

    def get(self, key: str) -> type | None:
        scope, name = self.split_scope_key(key)
        if scope in (None, self.scope):
            for location in sorted(self._locations, key=lambda location: location != _OWN_MODULES.get(name)):
                if name in self.module_dict:
                    break
                getattr(import_module(location), name, None)
        return super().get(key)

    def import_from_location(self) -> None:
        """Do nothing. MMEngine's ``get`` would import all locations here."""


def _child(parent: roots.Registry, *modules: str) -> roots.Registry:
    present = [name for name in modules if name not in _LIBRARIES or find_spec(_LIBRARIES[name])]
    return _Registry(parent.name, parent=parent, scope="mmlisa", locations=[f"mmlisa.{name}" for name in present])


_NETWORKS = (
    "models.attention",
    "models.backbones",
    "models.timm_backbone",
    "models.adaptation",
    "models.necks",
    "models.dense_heads",
    "models.heads",
)
MODELS = _child(roots.MODELS, *_NETWORKS, "video", "training.recipes", "inference.tiled", "inference.predictor")
TASK_UTILS = _child(roots.TASK_UTILS, *_NETWORKS)
HOOKS = _child(roots.HOOKS, "training.runner", "training.saving", "training.recipes", "visualization")
LOOPS = _child(roots.LOOPS, "training.saving")
OPTIMIZERS = _child(roots.OPTIMIZERS, "training.recipes")
OPTIM_WRAPPER_CONSTRUCTORS = _child(roots.OPTIM_WRAPPER_CONSTRUCTORS, "training.recipes")
OPTIM_WRAPPERS = _child(roots.OPTIM_WRAPPERS, "training.recipes")
DATASETS = _child(roots.DATASETS, "datasets.coco", "datasets.segmentation", "datasets.classification", "video")
TRANSFORMS = _child(roots.TRANSFORMS, "video", "datasets.coco")
METRICS = _child(roots.METRICS, "datasets.segmentation", "datasets.coco_metric", "datasets.classification")
MODEL_WRAPPERS = _child(roots.MODEL_WRAPPERS, "training.runner")
WEIGHT_INITIALIZERS = _child(roots.WEIGHT_INITIALIZERS, "conversion")
