"""Money: Decimal amounts, ISO 4217 currencies, one dated exchange snapshot, prices from the table.

A price is per person, room, vehicle or group, and perhaps per night. What a use costs follows from the table
and the size of the group, so it is worked out once per task and never read from the plan. Each line is
converted at the snapshot's rate and rounded half-even to the currency's minor unit, as an invoice would be;
sums of lines are then exact. What the table does not price has no price (None), which is not free.
"""

from __future__ import annotations

from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trueup.errors import DataError
from trueup.verifiers.base import Frozen

__all__ = ["Amount", "Currency", "Party", "Price", "Rates", "line_cost", "minor_unit", "round_money"]

# ISO 4217, active codes, by number of decimals.
_CODES = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY
        COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF
        IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR
        MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG
        SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VES WST
        XCD XCG YER ZAR ZMW ZWG""",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DECIMALS = {code: decimals for decimals, codes in _CODES.items() for code in codes.split()}


def _known_currency(code: str) -> str:
    if code not in _DECIMALS:
        raise ValueError(f"a currency must be an ISO 4217 code such as EUR, got {code!r}")
    return code


def _not_negative(amount: Decimal) -> Decimal:
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"an amount must be finite and not negative, got {amount}")
    return amount


Currency = Annotated[str, AfterValidator(_known_currency)]
Amount = Annotated[Decimal, AfterValidator(_not_negative)]


def minor_unit(currency: str) -> Decimal:
    """The smallest amount of a currency: 0.01 EUR, 1 JPY, 0.001 KWD."""
    return Decimal(1).scaleb(-_DECIMALS[currency])


def round_money(amount: Decimal, currency: str) -> Decimal:
    """Half-even to the minor unit."""
    return amount.quantize(minor_unit(currency), rounding=ROUND_HALF_EVEN)


class Party(Frozen):
    """Who travels."""

    adults: int = Field(ge=1, le=500)
    children: int = Field(default=0, ge=0, le=500)

    @property
    def size(self) -> int:
        return self.adults + self.children


class Price(Frozen):
    """A table's price for one use. `holds` is how many people one room or vehicle takes."""

    amount: Amount
    currency: Currency
    per: Literal["person", "room", "vehicle", "group"] = "person"
    child_amount: Amount | None = None  # per child, when it differs; per person only
    holds: int | None = Field(default=None, ge=1)
    per_night: bool = False


class Rates(Frozen):
    """Exchange snapshot: `rates[c]` units of c for one unit of `base`, as of `date`."""

    date: date
    base: Currency
    rates: dict[Currency, Annotated[Decimal, Field(gt=0, allow_inf_nan=False)]] = Field(default={})

    def convert(self, amount: Decimal, source: str, target: str) -> Decimal | None:
        """Amount in `target`, unrounded; None when the snapshot lacks one of the currencies."""
        if source == target:
            return amount
        from_rate = Decimal(1) if source == self.base else self.rates.get(source)
        to_rate = Decimal(1) if target == self.base else self.rates.get(target)
        return None if from_rate is None or to_rate is None else amount * to_rate / from_rate


def line_cost(
    price: Price | Literal["free"] | None, party: Party, rates: Rates | None, target: str
) -> Decimal | None:
    """What one use (or one night) costs the party in `target`, rounded; None when it cannot be known."""
    if price is None:
        return None
    if price == "free":
        return round_money(Decimal(0), target)
    if price.per == "person":
        child = price.amount if price.child_amount is None else price.child_amount
        total = party.adults * price.amount + party.children * child
    elif price.per == "group":
        total = price.amount
    elif price.holds is None:
        return None  # nobody knows how many rooms or vehicles are needed
    else:
        total = -(-party.size // price.holds) * price.amount
    if price.currency == target:
        return round_money(total, target)
    converted = rates.convert(total, price.currency, target) if rates is not None else None
    return None if converted is None else round_money(converted, target)


def check_currencies(target: str, rates: Rates | None) -> None:
    """Raise when the snapshot cannot express the task's own currency at all."""
    if rates is not None and target != rates.base and target not in rates.rates:
        raise DataError(
            f"The exchange snapshot must contain the task's currency, got {target!r}, base {rates.base!r}. "
            "No foreign price could be compared with the budget. Add the rate."
        )
