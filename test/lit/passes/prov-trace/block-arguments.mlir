// RUN: covan-opt %s -p prov-trace --mlir-print-debuginfo | FileCheck %s

// Block arguments have locations too.

// CHECK: func.func private @f(%{{.*}}: i32 loc(fused<#prov.trace<[3]>>[#loc{{[0-9]*}}]))
func.func private @f(%x: i32 loc("prov:3:x")) {
  return
}
