// RUN: covan-opt %s -p prov-check | FileCheck %s

// The table: x → exp → add ← x, seen through a reshape, then neg. The function computes it with exp and add fused, and
// nothing left of the view. The IR stays as it is.

// CHECK-LABEL: func.func @f(
// CHECK: math.fma
// CHECK: arith.negf
"prov.table"() ({
  "prov.action"() {id = 0, name = "f", op = "aten.f.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 1, action = 0, name = "exp", op = "aten.exp.default", inputs = [], types = [], args = "[[{\"a\":0}],[]]"} : () -> ()
  "prov.part"() {id = 2, action = 0, name = "add", op = "aten.add.Tensor", inputs = [1], types = [], args = "[[{\"p\":1},{\"a\":0}],[]]"} : () -> ()
  "prov.part"() {id = 3, action = 0, name = "view", op = "aten.view.default", inputs = [2], types = [], args = "[[{\"p\":2},[4]],[]]", view = true} : () -> ()
  "prov.part"() {id = 4, action = 0, name = "neg", op = "aten.neg.default", inputs = [3], types = [], args = "[[{\"p\":3}],[]]"} : () -> ()
}) : () -> ()
func.func @f(%x: f32) -> f32 {
  %a = math.fma %x, %x, %x : f32 loc(fused["prov:1:exp", "prov:2:add"])
  %n = arith.negf %a : f32 loc("prov:4:neg")
  return %n : f32
}
