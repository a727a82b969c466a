"""Expressions about devices mean what they mean to an API server."""

from __future__ import annotations

import pytest

from reconciler.kubernetes.dra.expressions import DeviceTraits, Expression, Expressions, SelectorError, look_of
from reconciler.kubernetes.dra.wire import Attribute, CounterValue

D = "gpu.nvidia.com"
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"


def a_look(**strings: str) -> DeviceTraits:
    attributes = {
        "type": Attribute(string_value="mig"),
        "index": Attribute(int_value=3),
        "driverVersion": Attribute(version_value="570.124.6"),
        "example.com/fast": Attribute(bool_value=True),
        **{name: Attribute(string_value=value) for name, value in strings.items()},
    }
    return look_of(D, attributes, {"memory": CounterValue("20Gi"), "share": CounterValue("0.5")})


@pytest.mark.parametrize(
    ("expression", "selects"),
    [
        ("device.driver == 'gpu.nvidia.com'", True),
        (f"device.attributes['{D}'].type == 'mig' && device.attributes['{D}'].index in [1, 3]", True),
        ("device.attributes['example.com'].fast", True),
        # A domain that the device does not have is an empty one.
        ("has(device.attributes['other.com'].fast)", False),
        ("'other.com' in device.attributes", False),
        ("'example.com' in device.attributes", True),
        ("device.attributes['other.com'].?fast.orValue(false)", False),
        (f"device.attributes[?'{D}'].?type.orValue('') == 'mig'", True),
        (f"cel.bind(of, device.attributes['{D}'], of.type == 'mig' && of.index > 2)", True),
        (f"device.attributes['{D}'].exists(name, name == 'index')", True),
        (f"device.attributes['{D}'].type.matches('^m.g$') && 'MIG'.lowerAscii() == 'mig'", True),
        # Quantities: k8s.io/apiserver/pkg/cel/library/quantity.go.
        (f"device.capacity['{D}'].memory.compareTo(quantity('10Gi')) >= 0", True),
        (f"device.capacity['{D}'].memory.isLessThan(quantity('20G'))", False),
        (f"device.capacity['{D}'].memory == quantity('20480Mi')", True),
        (f"device.capacity['{D}'].memory.asInteger() == 21474836480", True),
        (f"device.capacity['{D}'].share.isInteger() || device.capacity['{D}'].share.asApproximateFloat() != 0.5", False),
        ("quantity('1').add(quantity('500m')).sub(1).compareTo(quantity('0.5')) == 0", True),
        ("quantity('-1').sign() == -1 && isQuantity('1k') && !isQuantity('1x')", True),
        # Versions: semverlib.go; semver.org, section 11.
        (f"device.attributes['{D}'].driverVersion.isGreaterThan(semver('570.124.6-rc.1'))", True),
        (f"device.attributes['{D}'].driverVersion.major() >= 570", True),
        ("semver('1.0.0-alpha.9').isLessThan(semver('1.0.0-alpha.10'))", True),
        ("semver('1.0.0-alpha.1').isLessThan(semver('1.0.0-alpha.beta'))", True),
        ("semver('1.0.0-alpha').isLessThan(semver('1.0.0-alpha.1'))", True),
        ("semver('v1.2', true) == semver('1.2.0+build') && !isSemver('1.2')", True),
    ],
)  # fmt: skip
def test_what_is_selected(expression: str, selects: bool) -> None:
    assert Expression(expression).selects(a_look()) is selects


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("device.driver ==", "Syntax error"),
        ("gpu.driver == ''", "undeclared reference to 'gpu"),
        ("quantity('1')", "has to be true or false"),
        ("1 + 1", "has to be true or false"),
        ("'a' + 1 == ''", "no matching overload"),
    ],
)
def test_what_can_t_be_compiled_is_said(expression: str, said: str) -> None:
    with pytest.raises(SelectorError, match=said):
        Expression(expression)
    known = Expressions()
    for _ in range(2):
        with pytest.raises(SelectorError, match=said):
            known.get(expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f"device.attributes['{D}'].nothing == 1", 'Key not found in map : "nothing"'),
        ("device.attributes['other.com'].fast", 'Key not found in map : "fast"'),
        (f"device.attributes['{D}'].type > 1", "No matching overloads"),
        (f"device.capacity['{D}'].memory > 1", "No matching overloads"),
        (f"device.capacity['{D}'].memory.compareTo(semver('1.0.0')) == 0", "expected a quantity"),
        (f"device.capacity['{D}'].memory.compareTo(quantity('lots')) == 0", "lots"),
        (f"device.attributes['{D}'].type", "has to be true or false"),
        (f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, true))))", "Iteration budget exceeded"),
    ],
)
def test_what_fails_on_a_device_is_said(expression: str, said: str) -> None:
    compiled = Expression(expression)
    for _ in range(2):
        with pytest.raises(SelectorError, match=said):
            compiled.selects(a_look())


@pytest.mark.parametrize(
    ("expression", "evaluated"),
    [
        (f"device.attributes['{D}'].type == 'mig'", 1),
        (f"device.driver == '{D}' && device.capacity['{D}'].memory.isGreaterThan(quantity('1'))", 1),
        (f"device.attributes['{D}'].uuid == '1'", 3),
        # Who looks at a whole domain, or hides what is looked at, is asked about each device.
        (f"cel.bind(of, device.attributes['{D}'], of.uuid == '1')", 3),
        ("device.attributes.exists(domain, device.attributes[domain].uuid == '1')", 3),
        (f"device.attributes['{D}'].uuid == '1' // don't stop 'here", 3),
        (f"device.attributes['{D}'].size() > 0", 3),
    ],
)
def test_devices_that_look_the_same_are_asked_about_once(expression: str, evaluated: int) -> None:
    compiled = Expression(expression)
    found = []
    for uuid in ("1", "2", "3"):
        try:
            found.append(compiled.selects(a_look(uuid=uuid)))
        except SelectorError:
            found.append(False)
    assert compiled.evaluated == evaluated
    if "uuid" in expression and "exists" not in expression:
        assert found == [True, False, False]


def test_an_attribute_of_an_unknown_kind_is_not_there() -> None:
    look = look_of(D, {"many": Attribute()}, {})
    assert not Expression(f"has(device.attributes['{D}'].many)").selects(look)
