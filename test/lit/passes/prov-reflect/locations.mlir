// RUN: covan-opt %s -p prov-reflect --mlir-print-debuginfo | FileCheck %s

// What is new stands where its op stands, with the trace of all that is in it.

// CHECK: [[L:#loc[0-9]*]] = loc(fused<#prov.trace<[3]>>
// CHECK: math.exp %{{.*}} : f32 loc([[OWN:#loc[0-9]*]])
// CHECK-NEXT: "prov.result"(%{{.*}}) : (f32) -> () loc([[L]])
// CHECK-NEXT: !prov.state loc([[L]])
// CHECK-NEXT: "prov.enter"{{.*}} loc([[L]])
// CHECK-NEXT: "prov.leave"{{.*}} loc([[L]])
func.func @f(%x: f32) -> f32 {
  %e = math.exp %x : f32 loc("prov:3:exp"("model.py":7:0))
  return %e : f32
}
