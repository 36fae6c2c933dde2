"""Private names of libraries that mmlisa uses, and why. A new version of the library may change them without notice."""

import ast
import re
from pathlib import Path

import mmlisa

REASONS = {
    # PyTorch
    "_BatchNorm": "the base of batch norms of every rank, SyncBN among them",
    "_C": "the module of `_are_functorch_transforms_active`",
    "_are_functorch_transforms_active": "in-place writes fail under torch.func, which no public function reports",
    "_guards_code": "the conditions on sizes that a recording passed stand nowhere else",
    "_load_state_dict_pre_hooks": "hooks of other libraries' modules rename and resample the weights of a file",
    "_current_level": "in-place writes fail under forward AD, which no public function reports",
    "_disable_current_modes": "constants of an exported graph are computed outside of its fake tensors",
    "_python_dispatch": "the module of `_disable_current_modes`",
    "_check": "tells torch.export the range of a size",
    "_ops": "the module of `OpOverload`, the operators of an exported graph",
    "_schema": "tells which operators of an exported graph write in place",
    "_metadata": "state dicts keep the versions of modules, and our grids",
    "_extra_state": "the end of the names of entries that are not tensors",
    "_modules": "replaces a child, or shares all of them, without `__setattr__`, which registers by type",
    "_parameters": "shares all parameters with another module",
    "_buffers": "shares all buffers with another module",
    "_pytree": "the leaves of nested results, which an export flattens",
    "_version": "tells that a tensor was written since it was saved",
    "_forward_hooks": "a fused module runs its parts without their hooks, so it must know that there are none",
    "_forward_pre_hooks": "as `_forward_hooks`",
    "_backward_hooks": "as `_forward_hooks`",
    "_backward_pre_hooks": "as `_forward_hooks`",
    "_scaled_dot_product_flash_attention_for_cpu": "PyTorch counts no FLOPs for it",
    "_roi_align_backward": "torchvision has the gradient as an operator without a public function",
    # timm
    "_features": "the module of `FeatureGetterNet` and `feature_take_indices`, the interface of `features_only`",
    # MMEngine
    "_global_step": "the progress in a scheduler's state, which is not a setting",
    "_last_value": "as `_global_step`",
    "_iter": "the loop's count has only a getter",
    "_load_from": "a hook has no other way to learn which file the runner loads",
    "_resume": "as `_load_from`",
    "_locations": "the registry imports them one after the other",
    "_params_init_info": "present while MMEngine initializes a model",
    "_schemes": "the registered loaders of checkpoints, which the safe one replaces",
    # mmdet, mmpretrain
    "_bbox_decode": "heads whose boxes no coder decodes (FCOS's family, YOLOX)",
    "_bbox_forward": "an exported file refuses heads that override it",
    "_mask_forward": "as `_bbox_forward`",
    "_bbox_post_process": "NMS of a head, called with candidates that are selected in another way; see also `_bbox_forward`",
    "_predict_by_feat_single": "the only place to select candidates of an image in another way; see also `_bbox_forward`",
    "_get_predictions": "writes scores into mmpretrain's data samples; see also `_bbox_forward`",
    "_coco_api": "the annotations that mmdet's metric has read",
    "_metainfo": "a data set has only a getter of its class names",
    "_channel_conversion": "whether a preprocessor converts BGR to RGB",
    "_enable_normalize": "whether a preprocessor normalises",
    # Python, and names in other files
    "_replace": "a public method of named tuples",
    "_codecs": "a function that pickles of protocol 2 name",
    "_core": "NumPy 2's package of functions that pickled arrays name",
    "_mean": "a statistic of Paddle's batch norms",
    "_variance": "a statistic of Paddle's batch norms",
}


def test_private_names_are_those_of_the_list():
    """Attributes of other objects, of ``self`` without an assignment, imports, texts, and methods that mmlisa never calls."""
    ours, methods, assigned, own_reads, reads, imports, texts = (set() for _ in range(7))
    for path in Path(mmlisa.__file__).parent.rglob("*.py"):
        tree, parts_of_texts = ast.parse(path.read_text(encoding="utf-8")), set()
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name, body=body):
                    ours.add(name)
                    ours.update(each.targets[0].id for each in body if isinstance(each, ast.Assign))
                    ours.update(each.target.id for each in body if isinstance(each, ast.AnnAssign))
                    methods.update(each.name for each in body if isinstance(each, ast.FunctionDef))
                case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls"), ctx=context):
                    (assigned if isinstance(context, ast.Store) else own_reads).add(name)
                case ast.Attribute(attr=name):
                    reads.add(name)
                case ast.Import(names=names):
                    imports.update(part for alias in names for part in alias.name.split("."))
                case ast.ImportFrom(module=module, names=names, level=0) if not module.startswith("mmlisa"):
                    imports.update(module.split("."), (alias.name for alias in names))
                case ast.JoinedStr(values=values):
                    parts_of_texts.update(map(id, values))
                case ast.Constant(value=str(name)) if id(node) not in parts_of_texts:
                    texts.add(name)
    names = (reads | own_reads - assigned | texts) - methods - ours | imports | methods - reads - own_reads
    assert {name for name in names if re.fullmatch(r"_[^\W_]\w*(?<!_)", name)} == REASONS.keys()
