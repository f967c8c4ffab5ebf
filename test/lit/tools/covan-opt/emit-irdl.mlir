// RUN: covan-opt --emit-irdl | covan-opt | FileCheck %s
// RUN: covan-opt --emit-irdl -o %t && torch-mlir-opt --irdl-file=%t --allow-unregistered-dialect %s | FileCheck %s --check-prefix=LOADED

// The definitions parse, and an MLIR without Python can load them.

// CHECK: irdl.dialect @prov
// CHECK:   irdl.attribute @trace
// CHECK:   irdl.operation @table
// CHECK:   irdl.operation @action
// CHECK:   irdl.operation @part

// LOADED: "prov.table"() ({
// LOADED: "prov.action"() {

// Without Python, a table ends in a terminator: IRDL cannot say that it needs none.

"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "", frames = [], types = []} : () -> ()
  "test.terminator"() : () -> ()
}) : () -> ()
