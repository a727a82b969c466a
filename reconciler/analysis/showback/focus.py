"""Charges as FOCUS has them, the FinOps Foundation's format of costs (FinOps Open Cost and Usage Specification 1.2, or 1.4).

A charge without a price has no line: a cost that is not known can't be written there, and is not 0. What was written once stays:
what has come to be known since is told by further lines, as long as the difference (`corrections`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Final, Literal, NamedTuple

from reconciler.analysis.showback.statement import Charge
from solver.model.quantities import Instant

FocusVersion = Literal["1.2", "1.4"]
FOCUS_VERSIONS: Final[tuple[FocusVersion, ...]] = ("1.2", "1.4")

_SELLERS: Final[Mapping[FocusVersion, tuple[str, ...]]] = {
    "1.2": ("ProviderName", "PublisherName"),
    "1.4": ("ServiceProviderName", "HostProviderName"),
}
_COSTS: Final = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
_QUANTITIES: Final = ("ConsumedQuantity", "PricingQuantity")
_UNIT_PRICES: Final = ("ListUnitPrice", "ContractedUnitPrice")
_COUNTED: Final = frozenset({*_COSTS, *_QUANTITIES, "ChargeClass", "ChargeDescription"})
"""What of a line says how much it is; all else says what it is of."""
_EXACT: Final = Context(prec=60)


class FocusLine(NamedTuple):
    """One row: text by the name of its column. "" is null."""

    values: Mapping[str, str]

    @property
    def of(self) -> tuple[tuple[str, str], ...]:
        """What it is of: lines of the same add up."""
        return tuple(sorted((name, value) for name, value in self.values.items() if name not in _COUNTED))


def columns_of(version: FocusVersion) -> tuple[str, ...]:
    """The columns that are written, sorted as FOCUS lists them: those of ours last."""
    own = ("x_Pool", "x_PriorityClass", "x_RateCard")
    common = {
        *_COSTS, *_QUANTITIES, *_UNIT_PRICES, *_SELLERS[version],
        "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd",
        "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodStart", "ChargePeriodEnd",
        "CommitmentDiscountStatus", "ConsumedUnit", "InvoiceId", "InvoiceIssuerName", "PricingCategory", "PricingUnit",
        "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter",
        "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
    }  # fmt: skip
    return (*sorted(common), *own)


def focus_lines(charges: Iterable[Charge], currency: str, issuer: str, version: FocusVersion) -> Iterator[FocusLine]:
    """A line for each charge that has a price. `issuer`: provides and bills it. Charges lie in one month of UTC each."""
    for charge in charges:
        if charge.price is not None and charge.cost is not None:
            yield FocusLine(_values(charge, charge.price.amount, charge.cost, currency, issuer, version))


def corrections(
    issued: Iterable[FocusLine], lines: Iterable[FocusLine], invoiced_until: Instant | None
) -> Iterator[FocusLine]:
    """What has to be added to lines that were issued so that together they say what `lines` say; nothing where they do.

    Of a billing period that was over by `invoiced_until` a line is a Correction; else it is one more charge of the period.
    """
    change: dict[tuple[tuple[str, str], ...], tuple[FocusLine, Decimal]] = {}
    for sign, those in ((-1, issued), (1, lines)):
        for line in those:
            _, before = change.get(line.of, (line, Decimal(0)))
            change[line.of] = line, before + sign * Decimal(line.values["PricingQuantity"])
    for line, quantity in change.values():
        if quantity:
            yield _correction(line, quantity, invoiced_until)


def _correction(line: FocusLine, quantity: Decimal, invoiced_until: Instant | None) -> FocusLine:
    cost = _EXACT.multiply(quantity, Decimal(line.values["ListUnitPrice"]))
    is_invoiced = invoiced_until is not None and line.values["BillingPeriodEnd"] <= _time(invoiced_until)
    return FocusLine(
        {
            **line.values,
            **dict.fromkeys(_COSTS, _decimal(cost)),
            **dict.fromkeys(_QUANTITIES, _decimal(quantity)),
            "ChargeClass": "Correction" if is_invoiced else "",
            "ChargeDescription": f"{line.values['ChargeDescription']}, corrected",
        }
    )


def _values(
    charge: Charge, price: Decimal, cost: Decimal, currency: str, issuer: str, version: FocusVersion
) -> dict[str, str]:
    begun, over = _month(charge.start)
    job = {"ResourceId": charge.job, "ResourceName": charge.job, "ResourceType": "Job" if charge.job else ""}
    tags = {"class": charge.priority_class, "job": charge.job, "user": charge.user}
    return {
        **dict.fromkeys(_COSTS, _decimal(cost)),
        **dict.fromkeys(_QUANTITIES, _decimal(charge.quantity)),
        **dict.fromkeys(_UNIT_PRICES, _decimal(price)),
        **dict.fromkeys(_SELLERS[version], issuer),
        **job,
        "BillingAccountId": issuer,
        "BillingAccountName": issuer,
        "BillingCurrency": currency,
        "BillingPeriodStart": begun,
        "BillingPeriodEnd": over,
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": f"GPU time of {charge.gpu_type}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _time(charge.start),
        "ChargePeriodEnd": _time(charge.end),
        "CommitmentDiscountStatus": "",
        "ConsumedUnit": "Hours",
        "InvoiceId": "",
        "InvoiceIssuerName": issuer,
        "PricingCategory": "Standard",
        "PricingUnit": "Hours",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU time",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": charge.gpu_type,
        "SkuMeter": "GPU time",
        "SkuPriceDetails": json.dumps({"x_GpuType": charge.gpu_type, "x_RateCard": charge.rate_card}),
        "SkuPriceId": f"{charge.rate_card}/{charge.gpu_type}/{price:f}",
        "SubAccountId": charge.queue,
        "SubAccountName": charge.queue,
        "SubAccountType": "Queue",
        "Tags": json.dumps({name: value for name, value in tags.items() if value}, sort_keys=True),
        "x_Pool": charge.pool,
        "x_PriorityClass": charge.priority_class,
        "x_RateCard": charge.rate_card,
    }


def rows_of(lines: Iterable[FocusLine], version: FocusVersion) -> Iterator[Sequence[str]]:
    """The cells of each line, in the order of the columns."""
    columns = columns_of(version)
    return ([line.values[name] for name in columns] for line in lines)


def _month(at: Instant) -> tuple[str, str]:
    begun = datetime.fromtimestamp(at // 1_000, UTC).replace(day=1, hour=0, minute=0, second=0)
    over = (begun + timedelta(days=32)).replace(day=1)
    return f"{begun:%Y-%m-%dT%H:%M:%SZ}", f"{over:%Y-%m-%dT%H:%M:%SZ}"


def _time(at: Instant) -> str:
    """To the second, as FOCUS writes times."""
    return f"{datetime.fromtimestamp(at // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _decimal(value: Decimal) -> str:
    """With a point, so that a column of whole numbers is one of decimals too."""
    text = f"{value:f}"
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"
