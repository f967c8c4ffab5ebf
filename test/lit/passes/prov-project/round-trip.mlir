// RUN: covan-opt %s --mlir-print-debuginfo -o %t.before
// RUN: covan-opt %s -p prov-reflect{untraced=true} -p prov-project --mlir-print-debuginfo -o %t.after
// RUN: diff %t.before %t.after

// Also after printing and parsing.

// RUN: covan-opt %s -p prov-reflect{untraced=true} -o %t.reflected
// RUN: covan-opt %t.reflected -p prov-project -o %t.text
// RUN: covan-opt %s -o %t.plain
// RUN: diff %t.plain %t.text

module {
  "prov.table"() ({
    "prov.action"() {id = 3, name = "exp", op = "aten.exp", module = "", frames = [], types = []} : () -> ()
    "prov.action"() {id = 4, name = "map", op = "aten.map", module = "", frames = [], types = []} : () -> ()
  }) : () -> ()
  func.func @f(%x: tensor<4xf32>, %k: f32, %a: i32) -> (tensor<4xf32>, i32, i1) {
    %c = arith.constant 7 : i32 loc("model.py":3:0)
    %e = math.exp %x : tensor<4xf32> loc("prov:3:exp"("model.py":7:0))
    %s, %o = arith.addui_extended %a, %a : i32, i1 loc("prov:3:exp")
    %s2, %o2 = arith.addui_extended %s, %c : i32, i1
    func.call @g(%s2) : (i32) -> () loc("prov:3:exp")
    cf.br ^bb1(%e : tensor<4xf32>)
  ^bb1(%v: tensor<4xf32>):
    %y = linalg.map ins(%v : tensor<4xf32>) outs(%x : tensor<4xf32>) (%i: f32, %j: f32) {
      %m = arith.mulf %i, %k : f32 loc("prov:4:map")
      linalg.yield %m : f32
    } loc("prov:4:map")
    return %y, %s2, %o2 : tensor<4xf32>, i32, i1
  }
  func.func private @g(i32)
}
