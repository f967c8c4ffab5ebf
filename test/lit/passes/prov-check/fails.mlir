// RUN: not covan-opt %s --split-input-file -p prov-check 2>&1 | FileCheck %s

// abs is the absolute value of neg in the table; here it reads what is computed from neg.

// CHECK: model.py:9:0: error: 'math.absf' op reads the value of neg (part 2) for abs (part 3), which no operation gives it
// CHECK: error: pass 'prov-check': 1 operation of the module cannot be what the table's parts are
"prov.table"() ({
  "prov.action"() {id = 0, name = "f", op = "aten.f.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 1, action = 0, name = "exp", op = "aten.exp.default", inputs = [], types = [], args = "[[{\"a\":0}],[]]"} : () -> ()
  "prov.part"() {id = 2, action = 0, name = "neg", op = "aten.neg.default", inputs = [1], types = []} : () -> ()
  "prov.part"() {id = 3, action = 0, name = "abs", op = "aten.abs.default", inputs = [2], types = []} : () -> ()
  "prov.part"() {id = 4, action = 0, name = "cos", op = "aten.cos.default", inputs = [2], types = []} : () -> ()
}) : () -> ()
func.func @operand(%x: f32) -> (f32, f32) {
  %e = math.exp %x : f32 loc("prov:1:exp")
  %n = arith.negf %e : f32 loc("prov:2:neg")
  %c = math.cos %n : f32 loc("prov:4:cos")
  %a = math.absf %c : f32 loc("prov:3:abs"("model.py":9:0))
  return %a, %n : f32, f32
}

// -----

// A trace that names what lies elsewhere: sin is computed from the other argument.

// CHECK: model.py:7:0: error: 'math.exp' op reads the value of argument 1 for sin (part 2), which no operation gives it
"prov.table"() ({
  "prov.action"() {id = 0, name = "f", op = "aten.f.default", module = "", frames = [], types = []} : () -> ()
  "prov.part"() {id = 1, action = 0, name = "exp", op = "aten.exp.default", inputs = [], types = [], args = "[[{\"a\":0}],[]]"} : () -> ()
  "prov.part"() {id = 2, action = 0, name = "sin", op = "aten.sin.default", inputs = [], types = [], args = "[[{\"a\":1}],[]]"} : () -> ()
  "prov.part"() {id = 3, action = 0, name = "neg", op = "aten.neg.default", inputs = [1], types = []} : () -> ()
}) : () -> ()
func.func @stranger(%x: f32, %y: f32) -> (f32, f32) {
  %e = math.exp %x : f32 loc(fused["prov:1:exp"("model.py":7:0), "prov:2:sin"])
  %n = arith.negf %e : f32 loc("prov:3:neg")
  return %e, %n : f32, f32
}

// -----

// CHECK: error: pass 'prov-check': the module has no prov.table: there is nothing to check it against
func.func @unknown(%x: f32) -> f32 {
  return %x : f32
}
