"""Markov chains that move a cloud towards a Gibbs measure: one sampler per file, one line here."""

from .base import Sampler as Sampler
from .base import SamplerInfo as SamplerInfo
from .base import sampler_or_default as sampler_or_default
from .mala import MALA as MALA
from .ula import ULA as ULA
