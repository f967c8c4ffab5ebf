// RUN: covan-opt %s -p prov-trace --allow-unregistered-dialect --mlir-print-debuginfo | FileCheck %s

// A name becomes the fused form and stays as the evidence for it.

// CHECK: "test.named"() : () -> () loc([[NAMED:#loc[0-9]*]])
"test.named"() : () -> () loc("prov:3:mm"("model.py":7:0))

// Nested traces become one.

// CHECK: "test.nested"() : () -> () loc([[NESTED:#loc[0-9]*]])
"test.nested"() : () -> () loc(fused[fused<#prov.trace<[5]>>["prov:5:add"("model.py":8:0)], "prov:3:mm"("model.py":7:0)])

// Members that say the same thing are kept once.

// CHECK: "test.twice"() : () -> () loc([[NAMED]])
"test.twice"() : () -> () loc(fused[fused<#prov.trace<[3]>>["prov:3:mm"("model.py":7:0)], "prov:3:mm"("other.py":1:0)])

// Without a trace there is nothing to do.

// CHECK: "test.plain"() : () -> () loc([[PLAIN:#loc[0-9]*]])
"test.plain"() : () -> () loc("model.py":9:0)

// CHECK-DAG: [[MM:#loc[0-9]*]] = loc("prov:3:mm"({{.*}}))
// CHECK-DAG: [[ADD:#loc[0-9]*]] = loc("prov:5:add"({{.*}}))
// CHECK-DAG: [[PLAIN]] = loc("model.py":9:0)
// CHECK-DAG: [[NAMED]] = loc(fused<#prov.trace<[3]>>{{\[}}[[MM]]])
// CHECK-DAG: [[NESTED]] = loc(fused<#prov.trace<[3, 5]>>{{\[}}[[ADD]], [[MM]]])
