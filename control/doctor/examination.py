"""All checks, in the order in which a person should read what they found: what is wrong first.

Pure: facts in, findings out.
"""

from control.doctor.facts import Facts
from control.doctor.finding import Finding
from control.doctor.home_checks import home_findings
from control.doctor.machine_checks import machine_findings, version_findings
from control.doctor.port_checks import port_findings
from control.doctor.process_checks import process_findings


def examine(facts: Facts) -> tuple[Finding, ...]:
    found = [
        *process_findings(facts),
        *port_findings(facts),
        *home_findings(facts),
        *machine_findings(facts),
        *version_findings(facts),
    ]
    # Sorting keeps the order of equals.
    return tuple(sorted(found, key=lambda finding: finding.level != "wrong"))


def is_well(findings: tuple[Finding, ...]) -> bool:
    """Warnings are worth knowing; nothing has to be done about them."""
    return not any(finding.level == "wrong" for finding in findings)
