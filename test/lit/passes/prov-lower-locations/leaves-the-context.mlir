// RUN: covan-opt %s -p prov-lower-locations{drop-table=true} --mlir-print-debuginfo | iree-opt --mlir-print-debuginfo | FileCheck %s

// Without its table, the module is read by a compiler that has never heard of prov, traces included.

// CHECK-NOT: prov.table
// CHECK: func.func private @f
// CHECK: = loc("prov:3:mm"
module {
  "prov.table"() ({
    "prov.action"() {id = 3, name = "mm", op = "aten.mm.default", module = "", frames = [], types = []} : () -> ()
  }) : () -> ()
  func.func private @f() loc(fused<#prov.trace<[3]>>["prov:3:mm"("model.py":7:0)])
}
