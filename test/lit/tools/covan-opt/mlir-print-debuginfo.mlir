// RUN: covan-opt %s --mlir-print-debuginfo | FileCheck %s
// RUN: covan-opt %s | FileCheck %s --check-prefix=WITHOUT

// CHECK: func.func private @f() loc([[L:#loc[0-9]*]])
// CHECK: [[L]] = loc("{{.*}}mlir-print-debuginfo.mlir":9:1)

// WITHOUT-NOT: #loc

func.func private @f()
