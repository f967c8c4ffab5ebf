// RUN: covan-opt %s -p prov-reflect -p prov-strip | FileCheck %s

// In reflected IR, traces are in attributes, too.

// CHECK: {op = "math.exp", trace = #prov.trace<[]>}
func.func @f(%x: f32) -> f32 {
  %e = math.exp %x : f32 loc("prov:3:exp")
  return %e : f32
}
