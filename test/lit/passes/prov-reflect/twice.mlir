// RUN: covan-opt %s -p prov-reflect -p prov-reflect --verify-diagnostics

// expected-error@unknown {{pass 'prov-reflect': the function is reflected already}}
func.func @f(%x: f32) -> f32 {
  %e = math.exp %x : f32 loc("prov:3:exp")
  return %e : f32
}
