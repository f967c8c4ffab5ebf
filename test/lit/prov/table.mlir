// RUN: covan-opt %s | covan-opt | FileCheck %s

// The table of a module: two actions, the second decomposed into two parts.

// CHECK-LABEL: module
// CHECK-NEXT:    "prov.table"() ({
// CHECK-NEXT:      "prov.action"() {frames = [{file = "model.py", function = "forward", internal = false, line = 7 : i64}], id = 1 : i64, module = "mlp.0", name = "relu", op = "aten.relu.default", types = ["f32[2,3]"]} : () -> ()
// CHECK-NEXT:      "prov.action"() {frames = [], id = 2 : i64, module = "", name = "softmax", op = "aten.softmax.int", types = ["f32[2,3]"]} : () -> ()
// CHECK-NEXT:      "prov.part"() {action = 2 : i64, id = 3 : i64, inputs = [], name = "exp", op = "aten.exp.default", types = ["f32[2,3]"]} : () -> ()
// CHECK-NEXT:      "prov.part"() {action = 2 : i64, id = 4 : i64, inputs = [3], name = "sum_1", op = "aten.sum.dim_IntList", types = ["f32[2,1]"]} : () -> ()
// CHECK-NEXT:    }) : () -> ()
"prov.table"() ({
  "prov.action"() {id = 1, name = "relu", op = "aten.relu.default", module = "mlp.0", frames = [{file = "model.py", line = 7, function = "forward", internal = false}], types = ["f32[2,3]"]} : () -> ()
  "prov.action"() {id = 2, name = "softmax", op = "aten.softmax.int", module = "", frames = [], types = ["f32[2,3]"]} : () -> ()
  "prov.part"() {id = 3, action = 2, name = "exp", op = "aten.exp.default", inputs = [], types = ["f32[2,3]"]} : () -> ()
  "prov.part"() {id = 4, action = 2, name = "sum_1", op = "aten.sum.dim_IntList", inputs = [3], types = ["f32[2,1]"]} : () -> ()
}) : () -> ()
