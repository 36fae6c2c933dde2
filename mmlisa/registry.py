"""mmlisa's registries: children of MMEngine's roots under the scope ``mmlisa``.

For ``type='mmlisa.X'`` in any OpenMMLab config, MMEngine imports this module and the ``locations`` below. The config needs no
``custom_imports``.
"""

from importlib import import_module
from importlib.util import find_spec

from mmengine import registry as roots

# Backbones and operators need only MMEngine; heads are available if the package that they extend is installed.
_MODEL_LOCATIONS = ["mmlisa.models.attention", "mmlisa.models.backbones"]
if find_spec("mmdet"):
    _MODEL_LOCATIONS += ["mmlisa.models.necks", "mmlisa.models.dense_heads"]
if find_spec("mmpretrain"):
    _MODEL_LOCATIONS += ["mmlisa.models.heads"]
_VIDEO = ["mmlisa.video"] if find_spec("mmpretrain") else []
_DATASETS = [
    f"mmlisa.datasets.{module}"
    for module, library in dict(coco="mmdet", segmentation="mmseg", classification="mmpretrain").items()
    if find_spec(library)
]
# The modules of classes whose import must not wait for that of the other libraries.
_OWN_MODULES = {
    "PairedSegDataset": "mmlisa.datasets.segmentation",
    "DemoSegDataset": "mmlisa.datasets.segmentation",
    "DemoClsDataset": "mmlisa.datasets.classification",
}


class _Registry(roots.Registry):
    """Registry that imports its locations one after the other until a name is registered.

    A backbone therefore needs neither mmdet nor mmpretrain, whose imports take seconds.
    """

    def get(self, key: str) -> type | None:
        scope, name = self.split_scope_key(key)
        self._locations.sort(key=lambda location: location != _OWN_MODULES.get(name))
        while scope in (None, self.scope) and name not in self.module_dict and self._locations:
            self._import_next()
        return super().get(key)

    def import_all(self) -> None:
        """Import all remaining locations."""
        while self._locations:
            self._import_next()

    def _import_next(self) -> None:
        import_module(self._locations[0])
        del self._locations[0]

    def import_from_location(self) -> None:
        """Do nothing. MMEngine's ``get`` would import all locations here."""


def _child(parent: roots.Registry, *locations: str) -> roots.Registry:
    return _Registry(parent.name, parent=parent, scope="mmlisa", locations=list(locations))


MODELS = _child(roots.MODELS, *_MODEL_LOCATIONS, *_VIDEO, "mmlisa.training.ema")
TASK_UTILS = _child(roots.TASK_UTILS, *_MODEL_LOCATIONS)
_HOOKS = [f"mmlisa.training.{name}" for name in ("hooks", "interrupts", "castling", "ema")]
HOOKS = _child(roots.HOOKS, *_HOOKS, "mmlisa.visualization", *_VIDEO)
LOOPS = _child(roots.LOOPS, "mmlisa.training.loops")
OPTIMIZERS = _child(roots.OPTIMIZERS, "mmlisa.training.optimizers")
OPTIM_WRAPPER_CONSTRUCTORS = _child(roots.OPTIM_WRAPPER_CONSTRUCTORS, "mmlisa.training.optimizers")
OPTIM_WRAPPERS = _child(roots.OPTIM_WRAPPERS, "mmlisa.training.optimizers")
DATASETS = _child(roots.DATASETS, *_DATASETS, *_VIDEO)
TRANSFORMS = _child(roots.TRANSFORMS, "mmlisa.datasets.transforms", *_VIDEO)
METRICS = _child(roots.METRICS, "mmlisa.visualization.evaluation", "mmlisa.datasets.segmentation")
WEIGHT_INITIALIZERS = _child(roots.WEIGHT_INITIALIZERS, "mmlisa.conversion")
