"""Every connector passes the same tests; see `scenarios`. A case in ``cases/`` is all that a connector adds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.connectors.register import BUILT_IN

from tests.connectors.cases.base import Case, SinkCase, SourceCase
from tests.connectors.scenarios import Place, Scenario, scenario_of
from tests.connectors.targets import Targets
from tests.support.instances import server
from tests.support.servers import Server

__all__ = ["server"]

CASES = Path(__file__).parent / "cases"


def found_cases(missing: list[str]) -> list[type[Case]]:
    """Return the cases of all modules, those of one server beside each other, so that it is started once.

    Args:
        missing: gets the modules that cannot be imported, as ``make test`` does without the extra of connectors.
    """
    found: list[type[Case]] = []
    for path in sorted(CASES.glob("*.py")):
        try:
            module = importlib.import_module(f"tests.connectors.cases.{path.stem}")
        except ImportError as error:
            missing.append(f"{path.name}: {error}")
            continue
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, SinkCase | SourceCase) and one.__module__ == module.__name__
            if hasattr(one, "connector")
        ]
    return sorted(found, key=lambda one: (server_name(one), one.__name__))


def server_name(case: type[Case]) -> str:
    return case.server.__name__ if case.server is not None else ""


def parameter(case: type[Case], *more: Any) -> Any:
    """Return a case as pytest takes it; it is none of ``make test`` if it needs an extra or a server."""
    built = next((one for name, one in BUILT_IN.items() if case.connector in (name, *one.aliases)), None)
    needs_more = (built is not None and built.extra) or (case.server is not None and case.server.binary)
    marks = [pytest.mark.xdist_group(server_name(case) or case.__name__)]
    if needs_more or case.needs_extra:
        marks.append(pytest.mark.connectors)
    return pytest.param(case, *more, marks=marks, id="-".join([case.__name__, *(change_id(one) for one in more)]))


def change_id(more: tuple[dict[str, Any], str]) -> str:
    return "+".join(f"no {key}" if value is None else f"{key}={value}" for key, value in more[0].items())


MISSING: list[str] = []
FOUND = found_cases(MISSING)
ALL = [parameter(case) for case in FOUND]
BAD = [parameter(case, bad) for case in FOUND for bad in case.bad_configs]


@pytest.fixture(scope="session")
def targets() -> Iterator[Targets]:
    targets = Targets()
    yield targets
    targets.close()


@pytest.fixture
def scenario(
    case_type: type[Case], targets: Targets, server: Server, state_store: Server, tmp_path: Path
) -> Iterator[Scenario[Any]]:
    for name in ("case", "place"):
        (tmp_path / name).mkdir()
    case = case_type(targets.get(case_type), tmp_path / "case")
    place = Place(server, str(state_store.addresses["stateStorageServiceUrl"]), tmp_path / "place")
    scenario = scenario_of(case, place)
    yield scenario
    scenario.close()
    case.close()


@pytest.mark.connectors
def test_all_cases_can_be_imported() -> None:
    assert not MISSING


@pytest.mark.connectors
def test_every_connector_has_a_case() -> None:
    found = {(case.kind, case.connector) for case in FOUND}
    without = {
        f"{kind} {name}"
        for name, built in BUILT_IN.items()
        for kind in ("source", "sink")
        if getattr(built, kind) and not found & {(kind, one) for one in (name, *built.aliases)}
    }
    # The records of cron are times of the clock, which no case feeds; no MongoDB could be had.
    assert without == {"source cron", "sink mongodb"}


@pytest.mark.parametrize("case_type", ALL)
async def test_all_records_arrive_across_kills(scenario: Scenario[Any]) -> None:
    await scenario.run_across_kills()


@pytest.mark.parametrize("case_type", ALL)
async def test_few_records_arrive_once_with_threads(scenario: Scenario[Any]) -> None:
    await scenario.run_with_threads()


@pytest.mark.parametrize(("case_type", "bad"), BAD)
async def test_bad_config_is_answered_with_its_cause(scenario: Scenario[Any], bad: tuple[dict[str, Any], str]) -> None:
    await scenario.run_with_bad_config(*bad)
