// RUN: covan-opt %s -p prov-project | FileCheck %s

// The op takes the place of its action state, where its last input is known.

// CHECK-LABEL: func.func @f(
// CHECK-SAME: %[[X:.*]]: f32)
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[X]]
// CHECK-NEXT: %[[Y:.*]] = arith.addf %[[X]], %[[N]]
// CHECK-NEXT: return %[[Y]]
func.func @f(%x: f32) -> f32 {
  %op = "prov.perform"() ({
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    "prov.result"(%r) : (f32) -> ()
  }) {op = "arith.addf", trace = #prov.trace<[]>} : () -> !prov.state
  %s = "prov.enter"(%op, %x) : (!prov.state, f32) -> !prov.state
  %n = arith.negf %x : f32
  %t = "prov.enter"(%s, %n) : (!prov.state, f32) -> !prov.state
  %y = "prov.leave"(%t) {index = 0 : i64} : (!prov.state) -> f32
  return %y : f32
}
