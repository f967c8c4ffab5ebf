"""Tells lies about artifacts, and lists those that `verify()` believes.

    python bench/tell_lies.py model.covan --each 50

Each kind of `test/python/lies.py` is told at random; a lie is believed if the lineage can be read and is not refuted,
and no symmetry makes it true.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

from lies import KINDS, lies
from symmetry import Json, is_true

from covan_mlir.artifacts import artifact
from covan_mlir.checking.verify import verify
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.lineage_schema import StoredLineage, check
from covan_mlir.support.typed_json import SchemaError


def believed(data: Json) -> bool:
    """Whether a lineage can be read and is not refuted."""
    try:
        check(msgspec.convert(data, StoredLineage))
    except (SchemaError, msgspec.ValidationError):
        return False
    return verify(Lineage.from_json(data)).outcome != "no"


def main() -> int:
    """Exit status: whether any lie was believed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("artifacts", nargs="+", help="files that covan compile or Executable.save wrote")
    parser.add_argument("--each", type=int, default=20, help="lies of each kind about each artifact")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=[*KINDS], action="append", help="of these kinds only")
    options = parser.parse_args()
    worst = 0
    for path in options.artifacts:
        lineage = Lineage.of(artifact.read(path).variant().lineage)
        data: Json = json.loads(json.dumps(lineage.to_json()))
        print(f"{path}: {verify(lineage).outcome}")
        for kind in options.kind or KINDS:
            told = list(lies(data, kind, options.seed, options.each))
            accepted = [lie.what for lie in told if believed(lie.data) and not is_true(data, lie.data)]
            print(f"  {kind:20} {len(told):4} told, {len(accepted):4} believed")
            for what in accepted:
                print(f"    {what}")
            worst |= bool(accepted)
    return worst


if __name__ == "__main__":
    sys.exit(main())
