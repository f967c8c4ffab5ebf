// RUN: covan-opt %s -p prov-lower-locations --allow-unregistered-dialect --mlir-print-debuginfo | FileCheck %s

// The table stays; #prov.trace becomes names that every context understands.

// CHECK-LABEL: "prov.table"
// CHECK-NOT: #prov.trace
"prov.table"() ({
  "prov.action"() {id = 3, name = "mm", op = "aten.mm.default", module = "", frames = [], types = []} : () -> ()
  "prov.action"() {id = 5, name = "add", op = "aten.add.Tensor", module = "", frames = [], types = []} : () -> ()
}) : () -> ()

// A trace of one is a name.

// CHECK: "test.one"() : () -> () loc([[MM:#loc[0-9]*]])
"test.one"() : () -> () loc(fused<#prov.trace<[3]>>["prov:3:mm"("model.py":7:0)])

// A member with the plain name of an action becomes its key, ...

// CHECK: "test.plain"() : () -> () loc([[PLAIN:#loc[0-9]*]])
"test.plain"() : () -> () loc(fused<#prov.trace<[3, 5]>>["prov:3:mm"("model.py":7:0), "add"])

// ... and where no member names an id, one is added.

// CHECK: "test.added"() : () -> () loc([[ADDED:#loc[0-9]*]])
"test.added"() : () -> () loc(fused<#prov.trace<[5]>>["model.py":8:0])

// CHECK-DAG: [[MM]] = loc("prov:3:mm"({{.*}}))
// CHECK-DAG: [[ADD:#loc[0-9]*]] = loc("prov:5:add")
// CHECK-DAG: [[FILE:#loc[0-9]*]] = loc("model.py":8:0)
// CHECK-DAG: [[PLAIN]] = loc(fused{{\[}}[[MM]], [[ADD]]])
// CHECK-DAG: [[ADDED]] = loc(fused{{\[}}[[FILE]], [[ADD]]])
