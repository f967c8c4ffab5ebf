// RUN: covan-opt %s --pass-pipeline='builtin.module(func.func(prov-trace))' --mlir-print-debuginfo | FileCheck %s

// The pass runs on any op: here on the functions, which leaves the module's own location.

// CHECK: func.func private @f() loc([[F:#loc[0-9]*]])
// CHECK: } loc([[M:#loc[0-9]*]])
// CHECK-DAG: [[F]] = loc(fused<#prov.trace<[3]>>
// CHECK-DAG: [[M]] = loc("prov:4:m")
module {
  func.func private @f() loc("prov:3:f")
} loc("prov:4:m")
