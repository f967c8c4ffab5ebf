"""Ask pip-audit whether any pinned package has known vulnerabilities.

Exit status 1 if one has, or if the question fails. Without a network, or where the service knows none of the packages
(an index of packages without their advisories), nothing was asked: that is told, and is no failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pins

_NO_NETWORK = re.compile(
    r"^requests\.exceptions\.(ConnectionError|ProxyError|ConnectTimeout|ReadTimeout): .*|.*Could not connect to .*",
    re.MULTILINE,
)
"""What pip-audit's last lines say when nobody answers it."""


def main() -> int:
    """Exit status."""
    locks = [option for lock in pins.DISJOINT for option in ("-r", str(lock))]
    audit = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    answer = subprocess.run([*audit, "-f", "json", *locks], capture_output=True, text=True, check=False)
    if not answer.stdout.strip():
        return _unanswered(answer.stderr)
    packages = json.loads(answer.stdout)["dependencies"]
    asked = [package for package in packages if "skip_reason" not in package]
    if not asked:
        print(f"nothing was audited: the advisories of none of the {len(packages)} packages can be had here")
        return 0
    for package in packages:
        if "skip_reason" in package:
            print(f"not audited: {package['skip_reason']}")
    holes = [(package, hole) for package in asked for hole in package["vulns"]]
    for package, hole in holes:
        mended = f"mended in {', '.join(hole['fix_versions'])}" if hole["fix_versions"] else "not mended"
        print(f"{package['name']} {package['version']}: {hole['id']} ({mended})\n    {hole['description'][:200]}")
    print(f"{len(asked)} packages audited, {len(holes)} known vulnerabilities")
    return 1 if holes else answer.returncode


def _unanswered(messages: str) -> int:
    if reason := _NO_NETWORK.search(messages):
        print(f"nothing was audited, for there is no network: {reason[0][:200]}")
        return 0
    print(messages, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
