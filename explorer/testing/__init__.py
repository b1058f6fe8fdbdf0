"""The plugin contract as checks that any test file can run over its own components.

import pytest
from explorer.testing import contract_cases

@pytest.mark.parametrize("case", contract_cases("my_package"), ids=str)
def test_contract(case):
    case.check()
"""

from explorer.testing.cases import contract_cases as contract_cases
from explorer.testing.check import Case as Case
from explorer.testing.check import Check as Check
from explorer.testing.checks import CHECKS as CHECKS
from explorer.testing.expect import ContractFailure as ContractFailure
