"""Several processes: two train as one does, a dead one ends the others, weights may be sharded. All on gloo."""

import json
import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import METRICS, MODELS
from torch import nn
from torch.distributed.nn import all_reduce as all_reduce_with_gradients

from helpers.toy_runner import VALIDATION, runner
from mmlisa.checkpoints import latest_checkpoint, read_checkpoint
from mmlisa.models.backbones import LiSANet
from mmlisa.training.runner import _prepare_cpu_processes, train

pytestmark = pytest.mark.slow

ARCH = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 2, 2, 2))
SECONDS = 200  # after which a process that hangs is ended


class ToyNetwork(BaseModel):
    """A backbone, without batch norm unless asked for, in double precision, on constant images of three of a sample's numbers."""

    def __init__(self, signal_at: int = -1, number: int = signal.SIGKILL, broken_at: int = -1, **backbone) -> None:
        super().__init__()
        self.backbone = LiSANet(ARCH, image_size=32, **backbone).double()
        self.signal_at, self.number, self.broken_at, self.calls = signal_at, number, broken_at, 0

    def forward(self, inputs, mode="tensor"):
        if mode == "predict":
            return [{"seen": 1} for _ in inputs]
        self.calls += 1
        if self.signal_at == self.calls and get_rank() == 1:
            os.kill(os.getpid(), self.number)
        image = torch.stack(inputs)[:, :3, None, None].double().expand(-1, -1, 32, 32)
        loss = sum((m - 1).square().mean() for m in self.backbone(image))
        if self.broken_at == self.calls and get_rank() == 1:
            loss = loss * float("nan")
        return {"loss": loss, "whole": all_reduce_mean(loss)}


def all_reduce_mean(value: torch.Tensor) -> torch.Tensor:
    value = value.detach().clone()
    all_reduce(value, "mean")
    return value


class Count(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results.extend(data_samples)

    def compute_metrics(self, results):
        return {"count": len(results)}


MODELS.register_module(module=ToyNetwork, force=True)
METRICS.register_module(module=Count, force=True)


def in_processes(number: int, function: Callable[[], None]) -> list[int]:
    """Runs a function in forked processes of one group, and returns their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(number):
        if child := os.fork():
            children.append(child)
            continue
        signal.alarm(SECONDS)
        os.environ |= dict(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(number), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        code = 1
        try:
            function()
            code = 0
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def toy(folder: Path, processes: int, options: dict | None = None, **model):
    options = dict(options or {})
    if processes > 1:
        wrapper = dict(type="MMDistributedDataParallel", device_ids=None, broadcast_buffers=False)
        options |= dict(launcher="pytorch", model_wrapper_cfg=wrapper)
    return runner(
        folder,
        iterations=6,
        model=dict(type="ToyNetwork", **model),
        loader=dict(batch_size=4 // processes),
        **{**VALIDATION, "val_evaluator": dict(type="Count"), **options},
    )


def logged(folder: Path) -> list[dict]:
    (path,) = folder.glob("*/vis_data/2*.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_other_launchers_need_a_gpu(tmp_path):
    with pytest.raises(ValueError, match=r"--launcher 'slurm': this machine has no GPU, .* start them with torchrun"):
        runner(tmp_path, launcher="slurm")


def test_other_accelerators_are_left_to_mmengine(monkeypatch):
    monkeypatch.setattr("mmlisa.training.runner.get_device", lambda: "npu")
    cfg = Config(dict(launcher="pytorch"))
    _prepare_cpu_processes(cfg)
    assert not torch.distributed.is_initialized()
    assert "model_wrapper_cfg" not in cfg


def test_the_wrapper_of_a_config_stays(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr("mmlisa.training.runner.get_device", lambda: "cpu")
    cfg = Config(dict(launcher="pytorch", model_wrapper_cfg=dict(static_graph=True)))
    _prepare_cpu_processes(cfg)
    assert cfg.model_wrapper_cfg == dict(
        type="MMDistributedDataParallel",
        static_graph=True,
        broadcast_buffers=False,
        find_unused_parameters=False,
        device_ids=None,
    )


def test_two_processes_train_as_one_does(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    train(toy(one, 1))
    assert in_processes(2, lambda: train(toy(two, 2))) == [0, 0]
    curves = [[entry["whole"] for entry in logged(folder) if "whole" in entry] for folder in (one, two)]
    assert len(set(curves[0])) == 6
    assert curves[1] == pytest.approx(curves[0], rel=1e-5)  # the log has that many digits
    weights = [read_checkpoint(folder / "iter_6.pth")["state_dict"] for folder in (one, two)]
    # Adam divides by gradients that are nearly zero: rounding grows.
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=1e-6)
    # Seven samples on two processes: the one that fills up the last batch is not counted.
    assert [entry["count"] for folder in (one, two) for entry in logged(folder) if "count" in entry] == [7, 7]


def group_threads() -> list[str]:
    """The threads of this process that wait for other processes; PyTorch names them."""
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if "gloo" in name]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists threads as Linux does")
@pytest.mark.parametrize("interrupted", [False, True])
def test_no_thread_of_the_group_outlives_a_training(tmp_path, interrupted):
    """A thread that frees a tensor while the interpreter shuts down would abort the process."""

    def run() -> None:
        two = toy(tmp_path / "two", 2, signal_at=3 if interrupted else -1, number=signal.SIGTERM)
        assert group_threads(), "the threads have other names"
        with pytest.raises(SystemExit) if interrupted else nullcontext():
            train(two)
        assert not group_threads()

    assert in_processes(2, run) == [0, 0]


def synchronised(norm: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    """What PyTorch's SyncBatchNorm computes on GPUs from ``x: [N, C]``, with sums that gloo has as well."""
    if not norm.training:
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    sums = torch.stack([x.sum(0), x.square().sum(0), torch.full_like(x[0], len(x))])
    total, squares, count = all_reduce_with_gradients(sums)
    mean = total / count
    variance = squares / count - mean.square()
    with torch.no_grad():
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * count / (count - 1), norm.momentum)
    return (x - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias


# Averaged weights, two batches a step.
AVERAGED = dict(
    optim_wrapper=dict(optimizer=dict(type="Adam", lr=0.01), accumulative_counts=2),
    custom_hooks=[
        dict(type="mmlisa.IterationSeedHook"),
        dict(type="EMAHook", momentum=0.3, update_buffers=True),
    ],
)


def test_everything_at_once_on_two_processes(tmp_path, monkeypatch):
    """Frozen stages, recomputed blocks, batch norms of all processes, averaged weights and two batches a step.

    One process has PyTorch's batch norms, to which MMEngine reverts the synchronised ones, and recomputes nothing.
    """
    one, two = tmp_path / "one", tmp_path / "two"
    train(toy(one, 1, AVERAGED, norm_cfg=dict(type="SyncBN"), frozen_stages=1))
    monkeypatch.setattr(nn.BatchNorm1d, "forward", synchronised)
    options = dict(norm_cfg=dict(type="BN"), frozen_stages=1, with_cp=True)
    assert in_processes(2, lambda: train(toy(two, 2, AVERAGED, **options))) == [0, 0]
    first, last = (read_checkpoint(two / f"iter_{i}.pth")["state_dict"] for i in (4, 6))
    for stage in (0, 1):
        for name in ("running_var", "weight"):
            before, after = (weights[f"backbone.stages.{stage}.blocks.0.norm1.{name}"] for weights in (first, last))
            assert torch.equal(before, after) == (stage == 0), (stage, name)
    assert torch.equal(first["backbone.stem.proj.weight"], last["backbone.stem.proj.weight"])
    found, expected = (read_checkpoint(folder / "iter_6.pth") for folder in (two, one))
    for weights in ("state_dict", "ema_state_dict"):
        torch.testing.assert_close(found[weights], expected[weights], rtol=1e-4, atol=1e-6)


def test_synchronised_batch_norm_needs_a_gpu():
    def step() -> None:
        torch.distributed.init_process_group("gloo")
        backbone = LiSANet(ARCH, image_size=32, norm_cfg=dict(type="SyncBN"))
        with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
            nn.parallel.DistributedDataParallel(backbone)
        with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on GPU"):
            backbone(torch.randn(2, 3, 32, 40))
        torch.distributed.destroy_process_group()

    assert in_processes(2, step) == [0, 0]


@pytest.mark.fault
def test_a_dead_process_ends_the_others(tmp_path):
    codes = in_processes(2, lambda: train(toy(tmp_path / "dead", 2, signal_at=4)))
    assert codes[1] == -signal.SIGKILL
    assert codes[0] == 1, "rank 0 must end by itself, with an error"
    assert latest_checkpoint(tmp_path / "dead") == str(tmp_path / "dead" / "iter_2.pth")


@pytest.mark.fault
def test_a_broken_loss_of_one_process_stops_all(tmp_path):
    """Before the other one saves the weights, which the gradients of both have changed. Neither waits for the other to die."""

    def run() -> None:
        with pytest.raises(FloatingPointError):
            train(toy(tmp_path / "broken", 2, broken_at=4))

    assert in_processes(2, run) == [0, 0]
    assert latest_checkpoint(tmp_path / "broken") == str(tmp_path / "broken" / "iter_2.pth")


@pytest.mark.fault
def test_a_signal_in_a_validation_of_unequal_lengths_stops_all(tmp_path):
    """Of seven images, one process has four and the other three."""
    sampler = dict(type="DefaultSampler", shuffle=False, round_up=False)
    options = dict(
        val_dataloader=VALIDATION["val_dataloader"] | dict(batch_size=1, sampler=sampler),
        train_cfg=dict(by_epoch=False, max_iters=6, val_interval=3),
    )

    class Interrupt(Hook):
        def before_val_epoch(self, runner):
            if get_rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    def run() -> None:
        stopped = toy(tmp_path / "stopped", 2, options)
        stopped.register_hook(Interrupt())
        train(stopped)

    assert in_processes(2, run) == [143, 143]
    assert latest_checkpoint(tmp_path / "stopped") == str(tmp_path / "stopped" / "iter_3.pth")


@pytest.mark.fault
def test_a_signal_in_a_long_validation_stops_all_before_its_end(tmp_path):
    """torchrun does not wait longer than 30 seconds. Of 31 images, one process has 16 and the other 15."""
    data = dict(
        batch_size=1,
        dataset=dict(type="ToyPoints", length=31),
        sampler=dict(type="DefaultSampler", shuffle=False, round_up=False),
    )
    options = dict(
        val_dataloader=VALIDATION["val_dataloader"] | data,
        train_cfg=dict(by_epoch=False, max_iters=6, val_interval=3),
    )

    class Interrupt(Hook):
        batches = 0

        def before_val_epoch(self, runner):
            if get_rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)

        def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            self.batches += 1

    def run() -> None:
        stopped, interrupt = toy(tmp_path / "stopped", 2, options), Interrupt()
        stopped.register_hook(interrupt)
        with pytest.raises(SystemExit):
            train(stopped)
        assert interrupt.batches == 10

    assert in_processes(2, run) == [0, 0]
    last = tmp_path / "stopped" / "iter_3.pth"
    assert latest_checkpoint(tmp_path / "stopped") == str(last)
    assert read_checkpoint(last)["message_hub"]["runtime_info"]["mmlisa_validation_due"]


def test_weights_sharded_over_two_processes(tmp_path):
    """PyTorch's FSDP2 around a backbone and each of its blocks: the gradients are those of one process."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this PyTorch has no fully_shard")
    torch.manual_seed(0)
    backbone, images = LiSANet(ARCH, image_size=32).double(), torch.randn(4, 3, 32, 40, dtype=torch.double)

    def loss(network: nn.Module, images: torch.Tensor) -> torch.Tensor:
        return sum(m.square().mean() for m in network(images))

    def shard() -> None:
        torch.distributed.init_process_group("gloo")
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (get_world_size(),))
        for stage in backbone.stages:
            for block in stage.blocks:
                fsdp.fully_shard(block, mesh=mesh)
        fsdp.fully_shard(backbone, mesh=mesh)
        loss(backbone, images.chunk(2)[get_rank()]).backward()
        sharded = sum(p.to_local().numel() for p in backbone.parameters())
        gradients = {name: p.grad.full_tensor() for name, p in backbone.named_parameters()}
        if get_rank() == 0:
            torch.save({"gradients": gradients, "sharded": sharded}, tmp_path / "rank_0.pth")
        torch.distributed.destroy_process_group()

    assert in_processes(2, shard) == [0, 0]
    found = torch.load(tmp_path / "rank_0.pth")
    loss(backbone, images).backward()
    expected = {name: p.grad for name, p in backbone.named_parameters()}
    torch.testing.assert_close(found["gradients"], expected, rtol=1e-8, atol=1e-10)
    assert found["sharded"] < 0.6 * sum(p.numel() for p in backbone.parameters())


def test_frozen_stages_on_two_processes():
    """DistributedDataParallel waits for the gradient of every parameter that was not frozen when it wrapped the model."""

    def step_twice() -> None:
        torch.distributed.init_process_group("gloo")
        backbone = nn.parallel.DistributedDataParallel(LiSANet(ARCH, image_size=32, frozen_stages=1, with_cp=True))
        backbone.train()
        for _ in range(2):
            sum(m.square().mean() for m in backbone(torch.randn(2, 3, 32, 40))).backward()
        torch.distributed.barrier()
        del backbone  # a wrapper that is freed after its group may wait for ever
        torch.distributed.destroy_process_group()

    assert in_processes(2, step_twice) == [0, 0]


def test_picodets_losses_count_the_positives_of_all_processes():
    """The mean over two processes with one image each is the loss of both images, although one has three times the boxes."""
    pytest.importorskip("mmdet")
    from mmengine.structures import InstanceData

    from mmlisa.models.dense_heads import PicoHead

    torch.manual_seed(0)
    head = PicoHead(3, 16, train_cfg=dict(assigner=dict(type="mmlisa.VarifocalSimOTAAssigner"))).eval()
    sizes = [(8, 9), (4, 5), (2, 3), (1, 2)]
    maps = [[2 * torch.randn(2, channels, *size) for size in sizes] for channels in (3, 32)]
    boxes = torch.tensor([[4.0, 6, 30, 40], [20, 10, 66, 60], [40, 2, 70, 30], [30, 2, 50, 30]])
    gts = [InstanceData(bboxes=part, labels=torch.arange(len(part)) % 3) for part in (boxes[:3], boxes[3:])]
    expected = head.loss_by_feat(*maps, gts, [{}, {}])

    def step() -> None:
        torch.distributed.init_process_group("gloo")
        rank = get_rank()
        own = head.loss_by_feat(*([m[rank : rank + 1] for m in of] for of in maps), gts[rank : rank + 1], [{}])
        for name, loss in own.items():
            assert abs(loss / expected[name] - 1) > 0.05, "the processes have the same"
            torch.testing.assert_close(all_reduce_mean(loss), expected[name], rtol=1e-4, atol=0)
        torch.distributed.destroy_process_group()

    assert in_processes(2, step) == [0, 0]
