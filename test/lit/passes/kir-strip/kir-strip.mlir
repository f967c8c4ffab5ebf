// RUN: covan-opt %s -p kir-consolidate -p kir-strip --mlir-print-debuginfo | FileCheck %s

// Operators, and all that is in them, lose their traces; files, and what is no operator, keep theirs.

// CHECK: prov.table
// CHECK: math.absf {{.*}} loc([[ABS:#.+]])
// CHECK: "kir.reduction"
// CHECK-NOT: prov.trace
// CHECK: "fred.output"{{.*}} loc([[LINE:#.+]])
// CHECK-NOT: trace = #prov
// CHECK: loc([[LINE]])
// CHECK-DAG: [[LINE]] = loc("model.py":7:0)
// CHECK-DAG: [[ABS]] = loc("prov:2:neg"
"prov.table"() ({
  "prov.action"() {id = 0, name = "neg", op = "aten.neg.default", module = "", frames = [], types = []} : () -> ()
  "prov.action"() {id = 1, name = "amax", op = "aten.amax.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 2, action = 0, name = "neg", op = "aten.neg.default", inputs = [], types = []} : () -> ()
  "prov.part"() {id = 3, action = 1, name = "amax", op = "aten.amax.default", inputs = [2], types = []} : () -> ()
  "prov.part"() {id = 4, action = 1, name = "view", op = "aten.view.default", inputs = [3], types = []} : () -> ()
}) : () -> ()
func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %a = math.absf %arg0 : tensor<5x7xf32> loc("prov:2:neg")
  %m = "kir.reduction"(%a) ({
    ^bb0(%arg1: tensor<5x7xf32>):
      %1 = "fred.reduce"() ({
        %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%2) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
      "fred.output"(%1) : (tensor<5xf32>) -> () loc("prov:3:amax"("model.py":7:0))
    }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "f32", mode = "max", over = ["j"], results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32> loc("prov:3:amax"("model.py":7:0))
  return %m : tensor<5xf32>
}
