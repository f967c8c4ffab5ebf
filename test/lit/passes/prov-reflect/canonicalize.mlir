// RUN: covan-opt %s -p prov-reflect -p canonicalize -p cse -p prov-project | FileCheck %s

// Passes that know nothing of action states leave them alone: nothing is merged, folded, moved or erased.

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: arith.constant
// CHECK-NEXT: arith.constant
// CHECK-NEXT: math.exp
// CHECK-NEXT: math.exp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: return
func.func @f(%x: f32) -> f32 {
  %c = arith.constant 1.0 : f32 loc("prov:3:one")
  %dead = arith.constant 2.0 : f32 loc("prov:3:two")
  %e = math.exp %x : f32 loc("prov:4:exp")
  %twin = math.exp %x : f32 loc("prov:4:exp")
  %m = arith.mulf %e, %c : f32 loc("prov:5:mul")
  return %m : f32
}
