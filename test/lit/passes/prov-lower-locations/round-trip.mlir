// RUN: covan-opt %s -p prov-trace -p prov-lower-locations -p prov-trace --allow-unregistered-dialect --mlir-print-debuginfo | FileCheck %s

// prov-trace undoes it.

// CHECK: "test.op"() : () -> () loc([[L:#loc[0-9]*]])
// CHECK-DAG: [[ADD:#loc[0-9]*]] = loc("prov:5:add")
// CHECK-DAG: [[MM:#loc[0-9]*]] = loc("prov:3:mm")
// CHECK-DAG: [[L]] = loc(fused<#prov.trace<[3, 5]>>{{\[}}[[ADD]], [[MM]]])
"test.op"() : () -> () loc(fused<#prov.trace<[3, 5]>>["prov:5:add", "prov:3:mm"])
