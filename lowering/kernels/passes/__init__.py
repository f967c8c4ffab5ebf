"""Passes that ask which kernels there are. Files of passes as those of `covan_mlir.passes`, known by name once this
package is imported; the code generators are imported when such a pass runs for a target.
"""

from covan_mlir.passes.framework.registry import add_package

add_package(__name__)
