"""Dense heads that no OpenMMLab package has."""

from .pico_head import PicoHead, VarifocalSimOTAAssigner
