"""solve(snapshot) -> Plan. Pure."""
