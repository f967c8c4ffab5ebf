// RUN: covan-opt %s -p prov-strip --allow-unregistered-dialect --mlir-print-debuginfo | FileCheck %s

// Table and traces go; files, lines and names of others stay.

// CHECK-NOT: {{"prov[:.]|#prov}}
// CHECK: "test.named"() : () -> () loc([[NAMED:#loc[0-9]*]])
// CHECK: "test.fused"() : () -> () loc([[FUSED:#loc[0-9]*]])
// CHECK: "test.only"() : () -> () loc([[UNKNOWN:#loc[0-9]*]])
// CHECK: "test.call"() : () -> () loc([[CALL:#loc[0-9]*]])
// CHECK-NOT: {{"prov[:.]|#prov}}
// CHECK-DAG: [[NAMED]] = loc("model.py":7:0)
// CHECK-DAG: [[LAYER:#loc[0-9]*]] = loc("layer")
// CHECK-DAG: [[FUSED]] = loc(fused{{\[}}[[LAYER]], [[NAMED]]])
// CHECK-DAG: [[UNKNOWN]] = loc(unknown)
// CHECK-DAG: [[CALL]] = loc(callsite([[NAMED]] at [[LAYER]]))
"prov.table"() ({
  "prov.action"() {id = 3, name = "mm", op = "aten.mm.default", module = "", frames = [], types = []} : () -> ()
}) : () -> ()
"test.named"() : () -> () loc("prov:3:mm"("model.py":7:0))
"test.fused"() : () -> () loc(fused<#prov.trace<[3]>>["layer", "prov:3:mm"("model.py":7:0)])
"test.only"() : () -> () loc("prov:3:mm")
"test.call"() : () -> () loc(callsite("prov:3:mm"("model.py":7:0) at "layer"))
