"""Import paths of Spark's modules in earlier versions go on working."""

import pytest

from tests.api.test_moved_modules import NEEDS_SPARK, check_former_name

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", NEEDS_SPARK)
def test_module_is_found_under_its_former_name(name: str) -> None:
    check_former_name(name)
