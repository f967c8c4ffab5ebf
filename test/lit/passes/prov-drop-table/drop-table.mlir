// RUN: covan-opt %s -p prov-drop-table --mlir-print-debuginfo | FileCheck %s --check-prefixes=CHECK,PLAIN
// RUN: covan-opt %s -p 'prov-drop-table{lines=true}' --mlir-print-debuginfo | FileCheck %s --check-prefixes=CHECK,LINES
// RUN: covan-opt %s -p 'prov-drop-table{keep=true}' --mlir-print-debuginfo | FileCheck %s --check-prefixes=CHECK,KEEP

// The table goes, traces stay. With `lines` an attribute says where the user wrote each action: the innermost frame in the user's code.
// With `keep` the table is text, which prov-check reads.

// PLAIN-NOT: prov.lines
// LINES: module attributes {prov.lines = {{\[\[\[}}0, 2], "exp", "model.py", 7], {{\[\[}}1], "neg", "", 0]]}
// KEEP: module attributes {prov.kept = "{\22actions\22:[{\22id\22:0,\22name\22:\22exp\22,{{.*}}\22parts\22:[{\22id\22:2,
// CHECK-NOT: prov.table
// CHECK: math.exp %{{.*}} loc(#[[EXP:.*]])
// CHECK: #[[EXP]] = loc("prov:2:exp"{{.*}})
module {
  "prov.table"() ({
    "prov.action"() {id = 0 : i64, name = "exp", op = "aten.exp.default", module = "", types = ["f32[4]"],
                     frames = [{file = "torch/nn.py", function = "forward", internal = true, line = 99 : i64},
                               {file = "model.py", function = "forward", internal = false, line = 7 : i64}]} : () -> ()
    "prov.action"() {id = 1 : i64, name = "neg", op = "aten.neg.default", module = "", types = ["f32[4]"], frames = []} : () -> ()
    "prov.part"() {id = 2 : i64, action = 0 : i64, name = "exp", op = "aten.exp.default", inputs = [], types = ["f32[4]"]} : () -> ()
  }) : () -> ()
  func.func @main(%x: f32) -> f32 {
    %e = math.exp %x : f32 loc("prov:2:exp")
    return %e : f32
  }
}
