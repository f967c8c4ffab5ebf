// RUN: covan-opt %s -p prov-reflect | FileCheck %s --check-prefix=TRACED
// RUN: covan-opt %s -p prov-reflect{untraced=true} | FileCheck %s --check-prefix=ALL

// Ops without a trace stay as they are, unless asked for. Terminators stay.

// TRACED-LABEL: func.func @f
// TRACED-NEXT: arith.negf
// TRACED-NEXT: cf.br
// TRACED: "prov.perform"
// TRACED-NOT: "prov.perform"

// ALL-LABEL: func.func @f
// ALL: arith.negf
// ALL: {op = "arith.negf", trace = #prov.trace<[]>}
// ALL: cf.br
// ALL: {op = "math.exp", trace = #prov.trace<[3]>}
// ALL: return
"prov.table"() ({
  "prov.action"() {id = 3, name = "exp", op = "aten.exp", module = "", frames = [], types = []} : () -> ()
}) : () -> ()
func.func @f(%x: f32) -> f32 {
  %n = arith.negf %x : f32
  cf.br ^bb1(%n : f32)
^bb1(%v: f32):
  %e = math.exp %v : f32 loc("prov:3:exp")
  return %e : f32
}
