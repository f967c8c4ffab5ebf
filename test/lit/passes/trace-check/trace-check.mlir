// RUN: not covan-opt %s --load-pass-plugin=%S/Inputs/careless_passes.py -p func.func(test-drops) 2>&1 | FileCheck %s --check-prefix=DROPS
// RUN: not covan-opt %s --load-pass-plugin=%S/Inputs/careless_passes.py -p func.func(test-invents) 2>&1 | FileCheck %s --check-prefix=INVENTS
// RUN: not covan-opt %s --load-pass-plugin=%S/Inputs/careless_passes.py -p func.func(test-forgets) 2>&1 | FileCheck %s --check-prefix=FORGETS

// No covan pass may lose provenance, or make it up.

// DROPS: model.py:8:{{.*}}error: pass 'test-drops' drops id 4 (neg): 'arith.negf' carried it before, no op does now
// INVENTS: model.py:7:{{.*}}error: pass 'test-invents' invents id 5 (mul): 'math.exp' names what no op carried before
// FORGETS: pass.py:1:{{.*}}error: pass 'test-forgets' leaves 'arith.negf' without a trace, in a module that has a prov.table
"prov.table"() ({
  "prov.action"() {id = 3, name = "exp", op = "aten.exp", module = "", frames = [], types = []} : () -> ()
  "prov.action"() {id = 4, name = "neg", op = "aten.neg", module = "", frames = [], types = []} : () -> ()
  "prov.action"() {id = 5, name = "mul", op = "aten.mul", module = "", frames = [], types = []} : () -> ()
}) : () -> ()
func.func @f(%x: f32) -> f32 {
  %e = math.exp %x : f32 loc("prov:3:exp"("model.py":7:0))
  %n = arith.negf %e : f32 loc("prov:4:neg"("model.py":8:0))
  return %n : f32
}
