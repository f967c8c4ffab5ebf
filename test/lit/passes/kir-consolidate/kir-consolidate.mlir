// RUN: covan-opt %s -p kir-consolidate | FileCheck %s
// RUN: covan-opt %s -p 'prov-drop-table{keep=true},kir-consolidate' | FileCheck %s
// RUN: not covan-opt %s -p 'prov-drop-table,kir-consolidate' 2>&1 >/dev/null | FileCheck %s --check-prefix=NONE
// RUN: covan-opt %s -p kir-consolidate -p prov-strip | FileCheck %s --check-prefix=STRIPPED

// Parts are those of actions, which operators perform; without provenance they say nothing of them.

// CHECK: trace = #prov.trace<[0, 1]>
// NONE: the module has no table of provenance
// STRIPPED: "kir.reduction"
// STRIPPED-NOT: trace
"prov.table"() ({
  "prov.action"() {id = 0, name = "neg", op = "aten.neg.default", module = "", frames = [], types = []} : () -> ()
  "prov.action"() {id = 1, name = "amax", op = "aten.amax.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 2, action = 0, name = "neg", op = "aten.neg.default", inputs = [], types = []} : () -> ()
  "prov.part"() {id = 3, action = 1, name = "amax", op = "aten.amax.default", inputs = [2], types = []} : () -> ()
  "prov.part"() {id = 4, action = 1, name = "view", op = "aten.view.default", inputs = [3], types = []} : () -> ()
}) : () -> ()
func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %m = "kir.reduction"(%arg0) ({
    ^bb0(%arg1: tensor<5x7xf32>):
      %1 = "fred.reduce"() ({
        %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%2) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
      "fred.output"(%1) : (tensor<5xf32>) -> ()
    }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "f32", mode = "max", over = ["j"], results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32> loc(fused["prov:2:neg", "prov:3:amax", "prov:4:view"])
  return %m : tensor<5xf32>
}
