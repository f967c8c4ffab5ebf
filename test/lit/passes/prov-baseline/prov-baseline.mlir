// RUN: covan-opt %s -p prov-baseline | FileCheck %s --check-prefix=WRITES
// RUN: covan-opt %s -p prov-drop-table{keep=true} -p prov-baseline -p prov-check | FileCheck %s --check-prefix=EXCUSED

// Each function gets its graph: one operation, which reads the first argument and gives part 1.

// WRITES: func.func @first
// WRITES-SAME: prov.baseline = "[[[\22dispatch\22,\22call\22,{{\[\[}}\22arg\22,0]],[{{\[\[}}\22compute\22,[1]]]],[1],\22math.exp\22,[]]],{{.*}}]"
// WRITES: func.func @false
// WRITES-SAME: prov.baseline

// What was false before passes of ours ran is not theirs: here exp is said to be of an argument that it does not read.

// EXCUSED: func.func @false
module {
  "prov.table"() ({
    "prov.action"() {id = 0, name = "f", op = "aten.f", module = "", frames = [], types = []} : () -> ()
    "prov.part"() {id = 1, action = 0, name = "exp", op = "aten.exp.default", inputs = [], types = [], args = "[[{\"a\":0}],[]]"} : () -> ()
  }) : () -> ()
  func.func @first(%x: f32) -> f32 {
    %e = math.exp %x : f32 loc("prov:1:exp")
    return %e : f32
  }
  func.func @false(%x: f32, %y: f32) -> f32 {
    %e = math.exp %y : f32 loc("prov:1:exp")
    return %e : f32
  }
}
