"""The table of families."""

from tests.parity.families.classic import CLASSIC
from tests.parity.families.experts import EXPERT_FAMILIES
from tests.parity.families.hybrids import HYBRIDS
from tests.parity.families.llama_like import LLAMA_LIKE
from tests.parity.families.t5 import T5

FAMILIES = (*LLAMA_LIKE, *CLASSIC, *T5, *EXPERT_FAMILIES, *HYBRIDS)
