// RUN: covan-opt %s -p 'func.func(fred-raise)' --mlir-print-debuginfo | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise)' -p 'func.func(fred-lower)' --mlir-print-debuginfo | FileCheck %s --check-prefix=LOWERED

// The chain has the traces of all that it replaces, each step that of its own op; both ways.

// CHECK: [[ALL:#loc[0-9]*]] = loc(fused<#prov.trace<[3, 4]>>
// CHECK: "fred.chain"
// CHECK: value = "v0"} : () -> tensor<4xf32> loc([[SUM:#loc[0-9]*]])
// CHECK: value = "v1"} : () -> tensor<4xf32> loc([[ROOT:#loc[0-9]*]])
// CHECK: sizes = [4, 8]} : (tensor<4x8xf32>) -> tensor<4xf32> loc([[ALL]])
// CHECK: [[SUM]] = loc(fused<#prov.trace<[3]>>
// CHECK: [[ROOT]] = loc(fused<#prov.trace<[4]>>

// LOWERED: [[ROOT:#loc[0-9]*]] = loc(fused<#prov.trace<[4]>>
// LOWERED: math.sqrt {{.*}} loc([[ROOT]])

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module {
  "prov.table"() ({
    "prov.action"() {id = 3, name = "sum", op = "aten.sum", module = "", frames = [], types = []} : () -> ()
    "prov.action"() {id = 4, name = "sqrt", op = "aten.sqrt", module = "", frames = [], types = []} : () -> ()
  }) : () -> ()
  func.func @f(%a: tensor<4x8xf32>) -> tensor<4xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4xf32> loc("prov:3:sum")
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32> loc("prov:3:sum")
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32 loc("prov:3:sum")
      linalg.yield %s : f32 loc("prov:3:sum")
    } -> tensor<4xf32> loc("prov:3:sum")
    %o = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%m : tensor<4xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = math.sqrt %in : f32 loc("prov:4:sqrt")
      linalg.yield %s : f32 loc("prov:4:sqrt")
    } -> tensor<4xf32> loc("prov:4:sqrt")
    return %o : tensor<4xf32>
  }
}
