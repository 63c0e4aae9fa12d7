"""Which connection and queue a destination leads to."""

import pytest

from duesweep.core.routing import NoRouteError, Route, first_route, own_route


def _name(template: str, destination: str) -> str:
    return Route("*", "main", template).name_of(destination)


@pytest.mark.parametrize(
    ("pattern", "destination", "takes"),
    [
        ("*@*", "Billing@HOST-2", True),
        ("*@*", "Billing", False),
        ("Billing@HOST-?", "Billing@HOST-2", True),
        ("Billing", "billing", False),
        ("[[]dbo]*", "[dbo]x", True),
        ("[dbo]*", "[dbo]x", False),
        ("[dbo]*", "dx", True),
        ("other.*", "other.Queue", True),
        ("*", "", True),
        ("a\\*", "a\\b", True),
        ("x*", "x\ny", True),
    ],
)
def test_pattern_is_a_shells(pattern: str, destination: str, *, takes: bool) -> None:
    assert Route(pattern, "main", "{queue}").takes(destination) is takes


@pytest.mark.parametrize(
    ("template", "destination", "name"),
    [
        ("{queue}", "Billing@HOST-2", "Billing"),
        ("{queue}", "Billing", "Billing"),
        ("{machine}.{queue}", "Billing@HOST-2", "HOST-2.Billing"),
        ("{machine}", "Billing", ""),
        ("{destination}", "my.tb[e@[my.[sch@ma]", "my.tb[e@[my.[sch@ma]"),
        ("{machine}", "my.tb[e@[my.[sch@ma]", "[my.[sch@ma]"),
        ("fixed", "Billing@HOST-2", "fixed"),
        ("{queue}@[other]", "{machine}@x", "{machine}@[other]"),
    ],
)
def test_queue_is_named_after_the_destination(template: str, destination: str, name: str) -> None:
    assert _name(template, destination) == name


def test_first_route_that_fits_decides() -> None:
    routes = [Route("B*", "first", "{queue}"), Route("*", "second", "{queue}")]

    assert first_route(routes, "Billing").connection == "first"
    assert first_route(routes, "Shipping").connection == "second"


def test_own_queue_is_routed_by_the_endpoints_name_or_else_by_its_whole_address() -> None:
    names = ("Sales.Orders", "Sales.Orders@[dbo]@[nsb]")
    by_address, by_name = Route("*@*", "main", "{queue}"), Route("Sales.*", "other", "{queue}")

    assert own_route([by_address], names) == (by_address, names[1])
    assert own_route([by_address, by_name], names) == (by_name, names[0])
    assert by_address.name_of(names[1]) == "Sales.Orders"
    with pytest.raises(NoRouteError, match="own queue, Sales"):
        own_route([Route("Billing", "main", "{queue}")], names)
