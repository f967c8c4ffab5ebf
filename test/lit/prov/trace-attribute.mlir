// RUN: covan-opt %s --allow-unregistered-dialect --mlir-print-debuginfo | covan-opt --allow-unregistered-dialect --mlir-print-debuginfo | FileCheck %s

// #prov.trace is the metadata of a fused location. Without a table in the module, nothing says which ids there are.

// CHECK: "test.op"() : () -> () loc([[L:#loc[0-9]*]])
// CHECK: [[L]] = loc(fused<#prov.trace<[3, 4]>>[{{#loc[0-9]*}}, {{#loc[0-9]*}}])
"test.op"() : () -> () loc(fused<#prov.trace<[3, 4]>>["a", "b"])
