// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// Between the maximum and the sum lies an op that no chain can hold: there are two chains, one before and one after it.

// CHECK-LABEL: func.func @between(
// CHECK: %[[M:.*]] = "fred.chain"(
// CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[M]]
// CHECK: tensor.extract
// CHECK: %[[S:.*]] = "fred.chain"({{.*}}%[[O]]
// CHECK: return %[[S]]

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @between(%a: tensor<4x8xf32>, %t: tensor<9xf32>) -> tensor<4xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.maximumf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%m : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = arith.fptosi %in : f32 to i32
    %j = arith.index_cast %i : i32 to index
    %x = tensor.extract %t[%j] : tensor<9xf32>
    linalg.yield %x : f32
  } -> tensor<4xf32>
  %g = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%a, %o : tensor<4x8xf32>, tensor<4xf32>) outs(%g : tensor<4xf32>) {
  ^bb0(%in: f32, %p: f32, %out: f32):
    %d = arith.subf %in, %p : f32
    %s = arith.addf %d, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}
