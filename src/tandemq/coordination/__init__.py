"""A coordinator outside the group: small values that are only ever swapped, leases that end by themselves, watches."""
