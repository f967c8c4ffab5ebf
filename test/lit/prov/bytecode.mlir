// RUN: covan-opt %s --emit-bytecode | covan-opt --mlir-print-debuginfo | FileCheck %s

// The table and the traces survive bytecode.

// CHECK: "prov.action"() {{.*}}name = "relu"
// CHECK: func.func private @f() loc([[L:#loc[0-9]*]])
// CHECK: [[L]] = loc(fused<#prov.trace<[1]>>
"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
}) : () -> ()
func.func private @f() loc(fused<#prov.trace<[1]>>["prov:1:relu"])
